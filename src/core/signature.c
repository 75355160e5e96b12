#include "core/signature.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/map.h"
#include "base/status.h"
#include "reduce/reduce.h"

const dt_kind_traits_t *dt_kind_traits(uint8_t kind)
{
    static const dt_kind_traits_t traits[DT_KIND_LAST + 1] = {
        [0] = {.name = "operation"},
        [DT_KIND_ALLREDUCE] = {.name = "allreduce", .reduces = 1},
        [DT_KIND_BROADCAST] = {.name = "broadcast", .has_root = 1},
        [DT_KIND_BARRIER] = {.name = "barrier", .is_control = 1},
        [DT_KIND_ALLGATHER] = {.name = "allgather",
                               .deals_rows = 1,
                               .rows_differ = 1,
                               .is_sized = 1},
        [DT_KIND_REDUCESCATTER] = {.name = "reducescatter", .reduces = 1, .deals_rows = 1},
        [DT_KIND_ALLTOALL] = {.name = "alltoall", .deals_rows = 1, .rows_differ = 1, .is_sized = 1},
        [DT_KIND_REDUCE] = {.name = "reduce", .reduces = 1, .has_root = 1},
        [DT_KIND_GATHER] =
            {.name = "gather", .has_root = 1, .deals_rows = 1, .rows_differ = 1, .is_sized = 1},
        [DT_KIND_SCATTER] = {.name = "scatter", .has_root = 1, .deals_rows = 1},
        [DT_KIND_TRANSFER] = {.name = "transfer", .has_root = 1},
        [DT_KIND_SPARSE] = {.name = "sparse allreduce",
                            .reduces = 1,
                            .deals_rows = 1,
                            .is_sized = 1},
        [DT_KIND_COLLECT] = {.name = "collect", .deals_rows = 1},
        [DT_KIND_JOIN] = {.name = "join", .is_control = 1},
        [DT_KIND_PSET_ADD] = {.name = "dtrain_pset_add", .is_control = 1},
        [DT_KIND_PSET_REMOVE] = {.name = "dtrain_pset_remove", .is_control = 1},
    };
    return &traits[kind <= DT_KIND_LAST ? kind : 0];
}

const char *dt_kind_name(uint8_t kind)
{
    return dt_kind_traits(kind)->name;
}

static int same_codec(const dt_signature_t *a, const dt_signature_t *b)
{
    return memcmp(a->codec, b->codec, sizeof a->codec) == 0 && a->coded_bytes == b->coded_bytes;
}

static int same_shape(const dt_signature_t *a, const dt_signature_t *b)
{
    return a->ndim == b->ndim && memcmp(a->shape, b->shape, a->ndim * sizeof a->shape[0]) == 0;
}

int dt_signature_agrees(const dt_signature_t *a, const dt_signature_t *b)
{
    return a->kind == b->kind && a->op == b->op && a->dtype == b->dtype && same_shape(a, b) &&
           a->device == b->device && a->root == b->root && a->pset == b->pset &&
           a->prescale == b->prescale && a->postscale == b->postscale && a->peer == b->peer &&
           same_codec(a, b) && a->group == b->group && a->group_size == b->group_size &&
           a->group_index == b->group_index;
}

int dt_signature_equal(const dt_signature_t *a, const dt_signature_t *b)
{
    return a->priority == b->priority && a->memory == b->memory && dt_signature_agrees(a, b);
}

uint64_t dt_signature_hash(const dt_signature_t *signature)
{
    return dt_hash(signature,
                   offsetof(dt_signature_t, shape) + signature->ndim * sizeof signature->shape[0]);
}

int64_t dt_signature_count(const dt_signature_t *signature)
{
    int64_t bytes = (int64_t)dt_dtype_size((dtrain_dtype_t)signature->dtype);
    int64_t count = 1;
    int is_empty = 0;
    for (int i = 0; i < signature->ndim; i++) {
        if (signature->shape[i] < 0)
            return -1;
        is_empty |= signature->shape[i] == 0;
    }
    if (is_empty)
        return 0;
    for (int i = 0; i < signature->ndim; i++) {
        if (__builtin_mul_overflow(count, signature->shape[i], &count))
            return -1;
    }
    int64_t total;
    return __builtin_mul_overflow(count, bytes, &total) ? -1 : count;
}

int64_t dt_signature_row_count(const dt_signature_t *signature)
{
    int64_t count = 1;
    for (int i = 1; i < signature->ndim; i++)
        count *= signature->shape[i];
    return count;
}

static void describe_shape(const dt_signature_t *signature, char *text, size_t cap)
{
    int has_own_rows = dt_kind_traits(signature->kind)->rows_differ && signature->ndim > 0;
    size_t used = (size_t)snprintf(text, cap, has_own_rows ? "[*" : "[");
    for (int i = has_own_rows; i < signature->ndim && used < cap; i++)
        used += (size_t)snprintf(text + used, cap - used, "%s%" PRId64, i ? ", " : "",
                                 signature->shape[i]);
    if (used < cap)
        snprintf(text + used, cap - used, "]");
}

static dtrain_status_t check_adasum(const dt_signature_t *signature, const char *name)
{
    const char *type = dt_dtype_name((dtrain_dtype_t)signature->dtype);
    if (signature->kind != DT_KIND_ALLREDUCE ||
        !dt_dtype_is_float((dtrain_dtype_t)signature->dtype))
        return dt_fail(DTRAIN_ERR_UNSUPPORTED,
                       "%s '%.200s': adasum of %s: it is for allreduces of floating-point types",
                       dt_kind_name(signature->kind), name, type);
    return DTRAIN_OK;
}

static dtrain_status_t check_reduction(const dt_signature_t *signature, const char *name, int size)
{
    dtrain_op_t op = (dtrain_op_t)signature->op;
    if (op == DTRAIN_OP_ADASUM) {
        dtrain_status_t status = check_adasum(signature, name);
        if (status != DTRAIN_OK)
            return status;
        op = DTRAIN_OP_SUM; /* what is left are the scales */
    }
    dt_reduction_t reduction = {.dtype = (dtrain_dtype_t)signature->dtype,
                                .op = op,
                                .divisor = signature->op == DTRAIN_OP_AVERAGE ? size : 1,
                                .prescale = signature->prescale,
                                .postscale = signature->postscale};
    dtrain_status_t status = dt_reduction_check(&reduction);
    if (status == DTRAIN_OK)
        return status;
    char why[DT_ERROR_MAX];
    snprintf(why, sizeof why, "%s", dt_last_error());
    return dt_fail(status, "%s '%.200s': %.700s", dt_kind_name(signature->kind), name, why);
}

static int is_rank(int32_t rank, int size)
{
    return rank >= 0 && rank < size;
}

int dt_signature_has_ranks(const dt_signature_t *signature, int size)
{
    if (signature->kind == DT_KIND_TRANSFER)
        return is_rank(signature->root, size) && is_rank(signature->peer, size) &&
               signature->root != signature->peer;
    return !dt_kind_traits(signature->kind)->has_root || is_rank(signature->root, size);
}

static dtrain_status_t check_ranks(const dt_signature_t *signature, const char *name, int size)
{
    const char *kind = dt_kind_name(signature->kind);
    if (dt_signature_has_ranks(signature, size))
        return DTRAIN_OK;
    if (signature->kind == DT_KIND_TRANSFER) {
        int is_sender_wrong = !is_rank(signature->root, size);
        if (is_sender_wrong || !is_rank(signature->peer, size))
            return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%s '%.200s': peer %d is not a rank of %d",
                           kind, name, is_sender_wrong ? signature->root : signature->peer, size);
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "%s '%.200s': rank %d sends to itself, or receives from itself", kind, name,
                       signature->root);
    }
    return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%s '%.200s': root %d is not a rank of %d", kind,
                   name, signature->root, size);
}

dtrain_status_t dt_signature_check(const dt_signature_t *signature, const char *name, int size)
{
    const char *kind = dt_kind_name(signature->kind);
    if (dt_kind_traits(signature->kind)->is_control)
        return DTRAIN_OK;
    if (signature->device != DTRAIN_DEVICE_CPU && signature->device != DTRAIN_DEVICE_CUDA)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%s '%.200s': there is no device %d", kind,
                       name, signature->device);
    if (dt_signature_count(signature) < 0) {
        char shape[256];
        describe_shape(signature, shape, sizeof shape);
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "%s '%.200s': shape %s has a negative extent or more than 2^63 bytes", kind,
                       name, shape);
    }
    if (dt_kind_traits(signature->kind)->deals_rows && signature->ndim == 0)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "%s '%.200s': a tensor of 0 dimensions has no rows", kind, name);
    dtrain_status_t status = check_ranks(signature, name, size);
    if (status == DTRAIN_OK && dt_kind_traits(signature->kind)->reduces)
        status = check_reduction(signature, name, size);
    return status;
}

static void describe_codec(const dt_signature_t *signature, char *text, size_t cap)
{
    if (!signature->codec[0])
        snprintf(text, cap, "none");
    else
        snprintf(text, cap, "%s (%" PRId64 " bytes)", signature->codec, signature->coded_bytes);
}

static void describe_group(const dt_signature_t *signature, char *text, size_t cap)
{
    if (signature->group_size == 0)
        snprintf(text, cap, "none");
    else
        snprintf(text, cap, "tensor %u of %u, of names with hash %016" PRIx64,
                 signature->group_index + 1, signature->group_size, signature->group);
}

const char *dt_signature_difference(const dt_signature_t *a, const dt_signature_t *b, char *a_value,
                                    char *b_value, size_t cap)
{
    if (a->kind != b->kind) {
        snprintf(a_value, cap, "%s", dt_kind_name(a->kind));
        snprintf(b_value, cap, "%s", dt_kind_name(b->kind));
        return "operation";
    }
    if (a->dtype != b->dtype) {
        snprintf(a_value, cap, "%s", dt_dtype_name((dtrain_dtype_t)a->dtype));
        snprintf(b_value, cap, "%s", dt_dtype_name((dtrain_dtype_t)b->dtype));
        return "type";
    }
    if (!same_shape(a, b)) {
        describe_shape(a, a_value, cap);
        describe_shape(b, b_value, cap);
        return "shape";
    }
    if (a->op != b->op) {
        snprintf(a_value, cap, "%s", dt_op_name((dtrain_op_t)a->op));
        snprintf(b_value, cap, "%s", dt_op_name((dtrain_op_t)b->op));
        return "reduction";
    }
    if (a->device != b->device) {
        snprintf(a_value, cap, "%s", dt_device_name(a->device));
        snprintf(b_value, cap, "%s", dt_device_name(b->device));
        return "device";
    }
    const struct {
        const char *what;
        double a, b;
    } numbers[] = {{a->kind == DT_KIND_TRANSFER ? "sender" : "root", a->root, b->root},
                   {"receiver", a->peer, b->peer},
                   {"prescale", a->prescale, b->prescale},
                   {"postscale", a->postscale, b->postscale},
                   {"process set", a->pset, b->pset}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (numbers[i].a == numbers[i].b)
            continue;
        snprintf(a_value, cap, "%.17g", numbers[i].a);
        snprintf(b_value, cap, "%.17g", numbers[i].b);
        return numbers[i].what;
    }
    if (!same_codec(a, b)) {
        describe_codec(a, a_value, cap);
        describe_codec(b, b_value, cap);
        return "codec";
    }
    if (!dt_signature_agrees(a, b)) {
        describe_group(a, a_value, cap);
        describe_group(b, b_value, cap);
        return "group";
    }
    return NULL;
}

const char *dt_signature_describe(const dt_signature_t *signature, char *text, size_t cap)
{
    text[0] = '\0';
    if (dt_kind_traits(signature->kind)->is_control)
        return text;
    char shape[256];
    describe_shape(signature, shape, sizeof shape);
    snprintf(text, cap, "%s %s", dt_dtype_name((dtrain_dtype_t)signature->dtype), shape);
    return text;
}
