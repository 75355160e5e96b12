#include "train/grad_match.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/status.h"
#include "core/wire.h"

void dt_grad_match_write(const dt_grad_layout_t *layout, const dt_grad_terms_t *terms,
                         dt_buffer_t *buffer)
{
    dt_put_u32(buffer, (uint32_t)terms->op);
    dt_put_u32(buffer, (uint32_t)terms->is_order_fixed);
    dt_put_u32(buffer, (uint32_t)terms->device);
    dt_put_f64(buffer, terms->prescale);
    dt_put_f64(buffer, terms->postscale);
    dt_put_u64(buffer, (uint64_t)terms->first_bucket_bytes);
    dt_put_u64(buffer, (uint64_t)terms->bucket_bytes);
    dt_put_text(buffer, terms->codec, strlen(terms->codec));
    dt_put_u32(buffer, (uint32_t)layout->n);
    for (int i = 0; i < layout->n; i++) {
        const dt_grad_slice_t *slice = &layout->slices[i];
        const dt_grad_region_t *region = &layout->regions[slice->region];
        dt_put_text(buffer, slice->name, strlen(slice->name));
        dt_put_u8(buffer, (uint8_t)region->dtype);
        dt_put_u8(buffer, (uint8_t)region->param_dtype);
        dt_put_u8(buffer, (uint8_t)slice->ndim);
        for (int k = 0; k < slice->ndim; k++)
            dt_put_u64(buffer, (uint64_t)slice->shape[k]);
    }
    for (int i = 0; i < layout->n; i++)
        dt_put_u64(buffer, (uint64_t)layout->slices[i].first);
}

/* One comparison. */
typedef struct match {
    dt_reader_t reader;
    int rank, other_rank;
    char *text;
    size_t cap;
} match_t;

static int say(const match_t *match, const char *what, const char *field, const char *own,
               const char *other)
{
    snprintf(match->text, match->cap, "%s: %s is %.200s on rank %d, and %.200s on rank %d", what,
             field, own, match->rank, other, match->other_rank);
    return 1;
}

static int compare_number(match_t *match, const char *what, const char *field, int64_t own,
                          int64_t other)
{
    char a[32], b[32];
    if (own == other)
        return 0;
    snprintf(a, sizeof a, "%" PRId64, own);
    snprintf(b, sizeof b, "%" PRId64, other);
    return say(match, what, field, a, b);
}

static int compare_factor(match_t *match, const char *field, double own, double other)
{
    char a[32], b[32];
    if (own == other)
        return 0;
    snprintf(a, sizeof a, "%.17g", own);
    snprintf(b, sizeof b, "%.17g", other);
    return say(match, "the set", field, a, b);
}

static int compare_device(match_t *match, int32_t own)
{
    int32_t other = (int32_t)dt_get_u32(&match->reader);
    return own != other &&
           say(match, "the set", "device", dt_device_name(own), dt_device_name(other));
}

static int compare_codec(match_t *match, const char *own)
{
    size_t length;
    char other[DTRAIN_CODEC_NAME_MAX + 1];
    const char *text = dt_get_text(&match->reader, &length);
    snprintf(other, sizeof other, "%.*s", (int)length, text);
    if (strcmp(own, other) == 0)
        return 0;
    return say(match, "the set", "codec", *own ? own : "none", *other ? other : "none");
}

static int compare_terms(match_t *match, const dt_grad_terms_t *terms)
{
    dt_reader_t *reader = &match->reader;
    uint32_t op = dt_get_u32(reader);
    if (op != (uint32_t)terms->op)
        return say(match, "the set", "op", dt_op_name((dtrain_op_t)terms->op),
                   dt_op_name((dtrain_op_t)op));
    if (compare_number(match, "the set", "fixed_order", terms->is_order_fixed,
                       dt_get_u32(reader)) ||
        compare_device(match, terms->device) ||
        compare_factor(match, "prescale", terms->prescale, dt_get_f64(reader)) ||
        compare_factor(match, "postscale", terms->postscale, dt_get_f64(reader)))
        return 1;
    if (compare_number(match, "the set", "first_bucket_bytes", terms->first_bucket_bytes,
                       (int64_t)dt_get_u64(reader)) ||
        compare_number(match, "the set", "bucket_bytes", terms->bucket_bytes,
                       (int64_t)dt_get_u64(reader)))
        return 1;
    return compare_codec(match, terms->codec);
}

/* "[3, 4]" */
static void write_shape(char *text, size_t cap, int ndim, const int64_t *shape)
{
    size_t used = (size_t)snprintf(text, cap, "[");
    for (int i = 0; i < ndim && used < cap; i++)
        used +=
            (size_t)snprintf(text + used, cap - used, "%s%" PRId64, i > 0 ? ", " : "", shape[i]);
    if (used < cap)
        snprintf(text + used, cap - used, "]");
}

static int compare_shape(match_t *match, const char *what, const dt_grad_slice_t *slice)
{
    int64_t shape[DTRAIN_NDIM_MAX];
    char own[160], other[160];
    int ndim = dt_get_u8(&match->reader);
    if (ndim > DTRAIN_NDIM_MAX)
        return -1;
    for (int i = 0; i < ndim; i++)
        shape[i] = (int64_t)dt_get_u64(&match->reader);
    if (ndim == slice->ndim && memcmp(shape, slice->shape, (size_t)ndim * sizeof shape[0]) == 0)
        return 0;
    write_shape(own, sizeof own, slice->ndim, slice->shape);
    write_shape(other, sizeof other, ndim, shape);
    return say(match, what, "shape", own, other);
}

static int compare_type(match_t *match, const char *what, const char *field, dtrain_dtype_t own)
{
    dtrain_dtype_t other = (dtrain_dtype_t)dt_get_u8(&match->reader);
    return own == other ? 0 : say(match, what, field, dt_dtype_name(own), dt_dtype_name(other));
}

static int compare_slice(match_t *match, const dt_grad_layout_t *layout, int index)
{
    const dt_grad_slice_t *slice = &layout->slices[index];
    const dt_grad_region_t *region = &layout->regions[slice->region];
    char what[256];
    size_t length;
    const char *name = dt_get_text(&match->reader, &length);
    if (match->reader.failed)
        return -1;
    if (length != strlen(slice->name) || memcmp(name, slice->name, length) != 0) {
        char own[204], other[204];
        snprintf(own, sizeof own, "'%.200s'", slice->name);
        snprintf(other, sizeof other, "'%.*s'", (int)(length < 200 ? length : 200), name);
        snprintf(what, sizeof what, "parameter %d", index);
        return say(match, what, "the name", own, other);
    }
    snprintf(what, sizeof what, "tensor '%.200s'", slice->name);
    if (compare_type(match, what, "the gradient's type", region->dtype) ||
        compare_type(match, what, "the type", region->param_dtype))
        return 1;
    return compare_shape(match, what, slice);
}

/* All shapes and types alike, only the order can put a slice elsewhere. */
static int compare_place(match_t *match, const dt_grad_slice_t *slice)
{
    char what[256];
    snprintf(what, sizeof what, "tensor '%.200s'", slice->name);
    return compare_number(match, what, "its place in the order", slice->first,
                          (int64_t)dt_get_u64(&match->reader));
}

int dt_grad_match_compare(const dt_grad_layout_t *layout, const dt_grad_terms_t *terms, int rank,
                          const void *bytes, size_t length, int other_rank, char *text, size_t cap)
{
    match_t match = {.reader = dt_reader_make(bytes, length),
                     .rank = rank,
                     .other_rank = other_rank,
                     .text = text,
                     .cap = cap};
    int result = compare_terms(&match, terms);
    if (result)
        return result;
    int64_t n = dt_get_u32(&match.reader);
    /* What a longer list has more says less than what differs in both. */
    for (int i = 0; i < layout->n && i < n && !result && !match.reader.failed; i++)
        result = compare_slice(&match, layout, i);
    if (!result && !match.reader.failed)
        result = compare_number(&match, "the set", "the number of parameters", layout->n, n);
    for (int i = 0; i < layout->n && !result && !match.reader.failed; i++)
        result = compare_place(&match, &layout->slices[i]);
    return match.reader.failed ? -1 : result;
}

/* Finds out what differs, when something does. */
static dtrain_status_t explain(const dt_talk_t *talk, const dt_grad_layout_t *layout,
                               const dt_grad_terms_t *terms, const dt_buffer_t *own)
{
    int rank = talk->runtime->world.topology.rank, is_root = rank == talk->root;
    uint64_t length = own->length;
    dtrain_status_t status = dt_talk_broadcast(talk, &length, sizeof length, talk->root);
    if (status != DTRAIN_OK)
        return status;
    char *first = is_root ? (char *)own->data : dt_alloc((size_t)length + 1);
    if (!first)
        status = dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for another rank's layout");
    status = dt_talk_agree(talk, status);
    if (status == DTRAIN_OK)
        status = dt_talk_broadcast(talk, first, (size_t)length, talk->root);
    char text[DT_ERROR_MAX] = "";
    int result = 0;
    if (status == DTRAIN_OK && !is_root)
        result = dt_grad_match_compare(layout, terms, rank, first, (size_t)length, talk->root, text,
                                       sizeof text);
    if (!is_root)
        dt_free(first);
    if (status != DTRAIN_OK)
        return status;
    if (result != 0)
        status = dt_fail(result > 0 ? DTRAIN_ERR_MISMATCH : DTRAIN_ERR_INTERNAL, "%s",
                         result > 0 ? text : "another rank's layout cannot be read");
    status = dt_talk_agree(talk, status);
    return status == DTRAIN_OK ? dt_fail(DTRAIN_ERR_INTERNAL, "the layouts' hashes differ")
                               : status;
}

dtrain_status_t dt_grad_match(const dt_talk_t *talk, const dt_grad_layout_t *layout,
                              const dt_grad_terms_t *terms)
{
    dt_buffer_t own = {0};
    dt_grad_match_write(layout, terms, &own);
    dtrain_status_t status = DTRAIN_OK;
    if (own.failed)
        status = dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for the layout's bytes");
    status = dt_talk_agree(talk, status);
    int differs = 0;
    if (status == DTRAIN_OK)
        status = dt_talk_compare(talk, dt_hash(own.data, own.length), &differs);
    if (status == DTRAIN_OK && differs)
        status = explain(talk, layout, terms, &own);
    dt_buffer_free(&own);
    return status;
}
