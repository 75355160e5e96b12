/* signature.h - what must be the same on all ranks for an operation to be one operation. */
#ifndef DT_CORE_SIGNATURE_H
#define DT_CORE_SIGNATURE_H

#include <stddef.h>
#include <stdint.h>

#include "comm/backend.h"

typedef enum dt_kind {
    DT_KIND_ALLREDUCE = 1,
    DT_KIND_BROADCAST = 2,
    DT_KIND_BARRIER = 3,
    DT_KIND_ALLGATHER = 4,
    DT_KIND_REDUCESCATTER = 5,
    DT_KIND_ALLTOALL = 6,
    DT_KIND_REDUCE = 7,
    DT_KIND_GATHER = 8,
    DT_KIND_SCATTER = 9,
    DT_KIND_TRANSFER = 10, /* a send and a receive */
    DT_KIND_JOIN = 11,
    DT_KIND_PSET_ADD = 12,
    DT_KIND_PSET_REMOVE = 13,
    DT_KIND_SPARSE = 14, /* an allreduce of some rows */
    DT_KIND_COLLECT =
        15 /* the reverse of a scatter, to all: an allgather whose rows all ranks know */
} dt_kind_t;

#define DT_KIND_LAST DT_KIND_COLLECT

/* What kinds have in common. */
typedef struct dt_kind_traits {
    const char *name;
    unsigned reduces : 1;     /* has a reduction and scales */
    unsigned has_root : 1;    /* a transfer's is the sender */
    unsigned deals_rows : 1;  /* needs a first dimension */
    unsigned is_control : 1;  /* has no data: it is complete once it is agreed */
    unsigned rows_differ : 1; /* which may differ by rank, so that the output's size is not known */
    unsigned is_sized : 1;    /* ranks tell each other sizes before data moves */
} dt_kind_traits_t;

const dt_kind_traits_t *dt_kind_traits(uint8_t kind);

/* No padding: it is hashed as bytes. */
typedef struct dt_signature {
    uint8_t kind;  /* dt_kind_t */
    uint8_t op;    /* dtrain_op_t; 0 where the kind has none */
    uint8_t dtype; /* dtrain_dtype_t; 0 where there are no data */
    uint8_t ndim;
    int32_t device;
    int32_t root; /* a rank of the world; in the verdict on a JOIN the last that joined */
    int32_t pset;
    int32_t peer; /* a transfer's receiver */
    /* Ranks need not agree on it: the highest counts. Here, so that an id stands for it too. */
    int32_t priority;
    uint32_t group_size;  /* tensors in the group; 0: none */
    uint32_t group_index; /* this one's place in it */
    uint64_t group;       /* a hash of the names in it; 0: none */
    /* dt_memory_t: of a device's tensor here, ANY in host memory. Ranks need not agree on it: where
     * they differ it is ANY. An id stands for it too. So wide since there is no padding. */
    uint64_t memory;
    double prescale, postscale;
    char codec[DTRAIN_CODEC_NAME_MAX + 1]; /* its name, and zeros; all zeros: none */
    int64_t coded_bytes;                   /* of the whole tensor, when there is a codec */
    int64_t shape[DTRAIN_NDIM_MAX]; /* ndim are used, the others are not looked at; where rows
                                       differ, the first is 1, and says nothing */
} dt_signature_t;

const char *dt_kind_name(uint8_t kind);

int dt_signature_equal(const dt_signature_t *a, const dt_signature_t *b);
/* Equal but for what ranks need not agree on. */
int dt_signature_agrees(const dt_signature_t *a, const dt_signature_t *b);
uint64_t dt_signature_hash(const dt_signature_t *signature);

/* Elements of the shape (of a row, where rows differ); -1 when the product, in bytes, does not fit
 * 63 bits or an extent is negative. */
int64_t dt_signature_count(const dt_signature_t *signature);

/* Elements of one row, of a shape that has rows and a count. */
int64_t dt_signature_row_count(const dt_signature_t *signature);

/* Whether the ranks that it names are ranks of a world of `size`, and two where there are two. */
int dt_signature_has_ranks(const dt_signature_t *signature, int size);

/* OK, or INVALID_ARGUMENT / UNSUPPORTED with a text, for a world of `size` ranks and a dtype that
 * exists. `name` is for the text. The process set is not looked at. */
dtrain_status_t dt_signature_check(const dt_signature_t *signature, const char *name, int size);

/*
 * The first field in which the two differ, as a word for a message ("shape"), with both values as
 * text ("[3]", "[4]"); NULL when they agree.
 */
const char *dt_signature_difference(const dt_signature_t *a, const dt_signature_t *b, char *a_value,
                                    char *b_value, size_t cap);

/* Writes "float32 [3, 4]" for the stall report and returns text; "" without data. */
const char *dt_signature_describe(const dt_signature_t *signature, char *text, size_t cap);

#endif
