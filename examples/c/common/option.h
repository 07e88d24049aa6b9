/* SPDX-License-Identifier: Apache-2.0 */
/* Options of a command line, `--name value`: what is wrong is said with the program's name, and ends it with 2. */
#ifndef EXAMPLE_OPTION_H
#define EXAMPLE_OPTION_H
#include <stdint.h>

extern const char *option_program; /* set first */

#if defined(__GNUC__)
__attribute__((noreturn, format(printf, 3, 4)))
#endif
void option_bad(const char *name, const char *value, const char *rule, ...); /* value may be NULL */
#if defined(__GNUC__)
__attribute__((noreturn))
#endif
void option_unknown(const char *name);
/* Whether `name` is this option, which needs a value: a missing one (NULL) is refused, but only for a known name. */
int option_is(const char *option, const char *name, const char *value);
int64_t option_integer(const char *name, const char *value, int64_t least, int64_t most);
double option_real(const char *name, const char *value, double least, double most);
/* Of a program that takes none but --help; about = "NAME: what it does". */
void option_none(int count, char **arguments, const char *about);
/* Before hours of work: makes the folder, with its parents, and sees that files can be written in it. */
void option_folder(const char *name, const char *path);
/* The same for a file that is written later; its folder must exist. */
void option_file(const char *name, const char *path);
#endif
