/* SPDX-License-Identifier: Apache-2.0 */
/* A Markdown table whose columns line up on a terminal too. */
#ifndef EXAMPLE_TABLE_H
#define EXAMPLE_TABLE_H
#include <stdio.h>

enum { TABLE_CELLS = 1024, TABLE_TEXT = 256 };

typedef struct Table {
  int columns, cells;
  char text[TABLE_CELLS][TABLE_TEXT];
} Table;

void table_begin(Table *table, int columns);
void table_cell(Table *table, const char *format, ...); /* row by row, the head first; no text is cut */
void table_print(const Table *table, FILE *file);
#endif
