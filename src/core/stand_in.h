/*
 * stand_in.h - what a rank that has joined puts in for an operation of the others': values that
 * leave the result of the reduction as it is, bit for bit, and no rows where ranks bring their own.
 */
#ifndef DT_CORE_STAND_IN_H
#define DT_CORE_STAND_IN_H

#include "core/runtime.h"

struct dt_stand_in {
    dt_device_t *device; /* what it has there; NULL: nothing */
    void *memory;
    char key[1]; /* the operation's, for messages; as long as it takes */
};

/*
 * Makes `operation`, freshly acquired, a stand-in for one with this signature on a set. The key is
 * copied. An error with a text: the others' operation cannot go on.
 */
dtrain_status_t dt_stand_in_make(dt_operation_t *operation, const dt_signature_t *signature,
                                 const dt_pset_t *set, const char *key, size_t length);

/* Makes it an ordinary operation again, to be given back. */
void dt_stand_in_free(dt_operation_t *operation);

/*
 * Fills in `count` elements of the identity of a reduction: x op identity is x for every x. Under a
 * prescale p it is one for the values p x. There is none for a product under a prescale.
 */
void dt_identity_fill(void *memory, int64_t count, dtrain_dtype_t dtype, dtrain_op_t op,
                      double prescale);

#endif
