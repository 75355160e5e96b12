/*
 * stand_in.h - what a rank that has joined puts in for an operation of the others': memory with
 * the values that leave the result of the reduction as it is, bit for bit.
 */
#ifndef DT_CORE_STAND_IN_H
#define DT_CORE_STAND_IN_H

#include "core/operation.h"

struct dt_stand_in {
    struct dt_stand_in *next; /* of those given up */
    void *memory;             /* in and out */
    char *key;                /* the operation's, for messages */
};

/*
 * Makes `operation`, freshly acquired, a stand-in for one with this signature. The key is copied.
 * OUT_OF_MEMORY: the others' operation cannot go on.
 */
dtrain_status_t dt_stand_in_make(dt_operation_t *operation, const dt_signature_t *signature,
                                 const char *key, size_t length);
void dt_stand_in_free(dt_stand_in_t *stand_in); /* or NULL */

/*
 * Fills in `count` elements of the identity of a reduction: x op identity is x for every x. Under a
 * prescale p it is one for the values p x. There is none for a product under a prescale.
 */
void dt_identity_fill(void *memory, int64_t count, dtrain_dtype_t dtype, dtrain_op_t op,
                      double prescale);

#endif
