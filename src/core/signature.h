/* signature.h - what must be the same on all ranks for an operation to be one operation. */
#ifndef DT_CORE_SIGNATURE_H
#define DT_CORE_SIGNATURE_H

#include <stddef.h>
#include <stdint.h>

#include <dtrain/dtrain.h>

typedef enum dt_kind {
    DT_KIND_ALLREDUCE = 1,
    DT_KIND_BROADCAST = 2,
    DT_KIND_BARRIER = 3,
    DT_KIND_JOIN = 20,
    DT_KIND_PSET_ADD = 21,
    DT_KIND_PSET_REMOVE = 22
} dt_kind_t;

typedef struct dt_signature {
    uint8_t kind;  /* dt_kind_t */
    uint8_t op;    /* dtrain_op_t; 0 where the kind has none */
    uint8_t dtype; /* dtrain_dtype_t; 0 where there are no data */
    uint8_t ndim;
    int32_t device;
    int32_t root; /* a rank of the world; in the verdict on a JOIN: the last that joined */
    int32_t pset;
    double prescale, postscale;
    int64_t shape[DTRAIN_NDIM_MAX]; /* ndim are used, the others are not looked at */
} dt_signature_t;

const char *dt_kind_name(uint8_t kind); /* "operation" for what is none */
int dt_kind_exists(uint8_t kind);

/* 0: it is complete once it is agreed. */
int dt_kind_has_data(uint8_t kind);

int dt_signature_equal(const dt_signature_t *a, const dt_signature_t *b);
uint64_t dt_signature_hash(const dt_signature_t *signature);

/* Elements of the shape; -1 when the product, in bytes, does not fit 63 bits or an extent is
 * negative. */
int64_t dt_signature_count(const dt_signature_t *signature);

/* OK, or INVALID_ARGUMENT / UNSUPPORTED with a text, for a world of `size` ranks and a dtype that
 * exists. `name` is for the text. Whether the set exists is not looked at. */
dtrain_status_t dt_signature_check(const dt_signature_t *signature, const char *name, int size);

/*
 * The first field in which the two differ, as a word for a message ("shape"), with both values as
 * text ("[3]", "[4]"); NULL when they are equal.
 */
const char *dt_signature_difference(const dt_signature_t *a, const dt_signature_t *b, char *a_value,
                                    char *b_value, size_t cap);

/* Writes "float32 [3, 4]" for the stall report and returns text; "" without data. */
const char *dt_signature_describe(const dt_signature_t *signature, char *text, size_t cap);

#endif
