/* SPDX-License-Identifier: Apache-2.0 */
/* A long comparison in pieces: in the folder of --checkpoint, a small file for each finished run, and one with the
 * state of the run in progress. The same command goes on from there, and ends with the same numbers. */
#ifndef GPT_PIECES_H
#define GPT_PIECES_H
#include "train.h"

enum { TO_BE_CONTINUED = 75 }; /* exit status: the same command goes on */

typedef struct Piece { /* of a run in progress, beside the model */
  double smooth;       /* the loss that is shown */
  double seconds;      /* of training, so far */
} Piece;

void pieces_begin(void);                                    /* SIGTERM and SIGINT stop */
int piece_finished(const Session *session, const Run *run); /* its result is there */
/* Takes the run for this process: another one that trains it at this time ends the program, with 2 and a sentence.
 * Returns 0, and leaves it, where it is finished. */
int piece_take(const Session *session, const Run *run);
void piece_leave(void);
void piece_result(const Session *session, const Run *run, int64_t steps, Result *result); /* and is read */
/* Reads what was saved, if anything. Returns the steps taken. */
int64_t piece_resume(const Session *session, const Run *run, int64_t steps, Model *model, Result *result, Piece *piece);
/* After a step: saves when it is time. If the program was asked to stop, it ends here, with
 * TO_BE_CONTINUED. */
void piece_step(const Session *session, const Run *run, int64_t steps, const Model *model, const Result *result,
                const Piece *piece);
void piece_end(const Session *session, const Run *run, int64_t steps, const Result *result);
#endif
