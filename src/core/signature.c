#include "core/signature.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/map.h"
#include "base/status.h"
#include "reduce/reduce.h"

const char *dt_kind_name(uint8_t kind)
{
    switch (kind) {
    case DT_KIND_ALLREDUCE:
        return "allreduce";
    case DT_KIND_BROADCAST:
        return "broadcast";
    case DT_KIND_BARRIER:
        return "barrier";
    case DT_KIND_JOIN:
        return "join";
    case DT_KIND_PSET_ADD:
        return "dtrain_pset_add";
    case DT_KIND_PSET_REMOVE:
        return "dtrain_pset_remove";
    default:
        return "operation";
    }
}

int dt_kind_exists(uint8_t kind)
{
    return dt_kind_has_data(kind) || (kind >= DT_KIND_JOIN && kind <= DT_KIND_PSET_REMOVE) ||
           kind == DT_KIND_BARRIER;
}

int dt_kind_has_data(uint8_t kind)
{
    return kind == DT_KIND_ALLREDUCE || kind == DT_KIND_BROADCAST;
}

static int same_shape(const dt_signature_t *a, const dt_signature_t *b)
{
    return a->ndim == b->ndim && memcmp(a->shape, b->shape, a->ndim * sizeof a->shape[0]) == 0;
}

int dt_signature_equal(const dt_signature_t *a, const dt_signature_t *b)
{
    return a->kind == b->kind && a->op == b->op && a->dtype == b->dtype && same_shape(a, b) &&
           a->device == b->device && a->root == b->root && a->pset == b->pset &&
           a->prescale == b->prescale && a->postscale == b->postscale;
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

static void describe_shape(const dt_signature_t *signature, char *text, size_t cap)
{
    size_t used = (size_t)snprintf(text, cap, "[");
    for (int i = 0; i < signature->ndim && used < cap; i++)
        used += (size_t)snprintf(text + used, cap - used, "%s%" PRId64, i ? ", " : "",
                                 signature->shape[i]);
    if (used < cap)
        snprintf(text + used, cap - used, "]");
}

static dtrain_status_t check_reduction(const dt_signature_t *signature, const char *name, int size)
{
    dt_reduction_t reduction = {.dtype = (dtrain_dtype_t)signature->dtype,
                                .op = (dtrain_op_t)signature->op,
                                .divisor = signature->op == DTRAIN_OP_AVERAGE ? size : 1,
                                .prescale = signature->prescale,
                                .postscale = signature->postscale};
    dtrain_status_t status = dt_reduction_check(&reduction);
    if (status == DTRAIN_OK)
        return status;
    char why[DT_ERROR_MAX];
    snprintf(why, sizeof why, "%s", dt_last_error());
    return dt_fail(status, "allreduce '%.200s': %.700s", name, why);
}

dtrain_status_t dt_signature_check(const dt_signature_t *signature, const char *name, int size)
{
    const char *kind = dt_kind_name(signature->kind);
    if (!dt_kind_has_data(signature->kind))
        return DTRAIN_OK;
    if (signature->device != DTRAIN_DEVICE_CPU)
        return dt_fail(DTRAIN_ERR_UNSUPPORTED,
                       "%s '%.200s': device %d: this build has tensors in host memory only", kind,
                       name, signature->device);
    if (dt_signature_count(signature) < 0) {
        char shape[256];
        describe_shape(signature, shape, sizeof shape);
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "%s '%.200s': shape %s has a negative extent or more than 2^63 bytes", kind,
                       name, shape);
    }
    if (signature->kind == DT_KIND_ALLREDUCE)
        return check_reduction(signature, name, size);
    if (signature->root < 0 || signature->root >= size)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "broadcast '%.200s': root %d is not a rank of %d", name, signature->root,
                       size);
    return DTRAIN_OK;
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
    const struct {
        const char *what;
        double a, b;
    } numbers[] = {{"root", a->root, b->root},
                   {"prescale", a->prescale, b->prescale},
                   {"postscale", a->postscale, b->postscale},
                   {"device", a->device, b->device},
                   {"process set", a->pset, b->pset}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (numbers[i].a == numbers[i].b)
            continue;
        snprintf(a_value, cap, "%.17g", numbers[i].a);
        snprintf(b_value, cap, "%.17g", numbers[i].b);
        return numbers[i].what;
    }
    return NULL;
}

const char *dt_signature_describe(const dt_signature_t *signature, char *text, size_t cap)
{
    text[0] = '\0';
    if (!dt_kind_has_data(signature->kind))
        return text;
    char shape[256];
    describe_shape(signature, shape, sizeof shape);
    snprintf(text, cap, "%s %s", dt_dtype_name((dtrain_dtype_t)signature->dtype), shape);
    return text;
}
