/* agree.h - all ranks go on together, or all of them stop and know why.
 *
 * Each function is collective: every rank calls it, whatever happened to it before. */
#ifndef MLP_AGREE_H
#define MLP_AGREE_H

#include <stdint.h>

#include "error.h"

/*
 * Returns 0 on every rank when `status` is 0 on all. Otherwise -1 on every rank, and `error` is
 * everywhere that of the lowest rank that failed, with its number.
 */
int agree_on_success(int status, mlp_error_t *error);

/*
 * Returns 0 on every rank when all have rank 0's `number`. Otherwise -1 on every rank; the text
 * says that `what` of some rank differs from rank 0's.
 */
int agree_on_number(uint64_t number, const char *what, mlp_error_t *error);

/* Fails with the text of this thread's last libdtrain error, naming this rank. */
int agree_library_error(mlp_error_t *error);

#endif
