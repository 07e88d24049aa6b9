/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"

#include <stdarg.h>
#include <string.h>

#include "check.h"

void table_begin(Table *table, int columns) {
  table->columns = columns;
  table->cells = 0;
}

void table_cell(Table *table, const char *format, ...) {
  REQUIRE(table->cells < TABLE_CELLS, "the table is full");
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(table->text[table->cells++], TABLE_TEXT, format, arguments);
  va_end(arguments);
  REQUIRE(length >= 0 && length < TABLE_TEXT, "a cell of %d bytes, at most %d fit", length, TABLE_TEXT - 1);
}

static int width(const char *text) { /* characters, not bytes, of UTF-8 */
  int count = 0;
  for (; *text; ++text) count += (*text & 0xc0) != 0x80;
  return count;
}

void table_print(const Table *table, FILE *file) {
  int columns = table->columns, rows = table->cells / columns;
  for (int r = 0; r < rows; ++r) {
    for (int pass = 0; pass <= (r == 0); ++pass) { /* the rule follows the head */
      for (int c = 0; c < columns; ++c) {
        const char *text = table->text[r * columns + c];
        int widest = 3;
        for (int i = 0; i < rows; ++i) {
          int w = width(table->text[i * columns + c]);
          widest = w > widest ? w : widest;
        }
        int fill = widest - width(text);
        if (pass) {
          fputs(c ? " -" : "| -", file);
          for (int i = 1; i < widest; ++i) fputc(c && i + 1 == widest ? ':' : '-', file);
          fputs(" |", file);
        } else if (c) {
          fprintf(file, " %*s%s |", fill, "", text); /* numbers to the right */
        } else {
          fprintf(file, "| %s%*s |", text, fill, "");
        }
      }
      fputc('\n', file);
    }
  }
  fputc('\n', file);
}
