#include "train/grad_layout.h"

#include <inttypes.h>
#include <string.h>

#include "base/dtype.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/status.h"
#include "core/signature.h"

/* Slices begin on borders of so many bytes, in the memory of gradients and of parameters. */
#define ALIGNMENT 128

static dtrain_status_t no_memory(void)
{
    return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for the layout of a gradient set");
}

static dtrain_status_t check_param(const dtrain_param_t *param, int index, int64_t *count)
{
    if (param->struct_size < sizeof *param)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "dtrain_param_t %d: struct_size is %u, not %zu: set it to sizeof", index,
                       param->struct_size, sizeof *param);
    if (!param->name || param->name[0] == '\0')
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "parameter %d has no name", index);
    if (strnlen(param->name, DTRAIN_NAME_MAX + 1) > DTRAIN_NAME_MAX)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "parameter %d: the name '%.60s…' is longer than %d bytes", index,
                       param->name, DTRAIN_NAME_MAX);
    if (dt_dtype_size(param->dtype) == 0 ||
        (param->gradient_dtype != 0 && dt_dtype_size(param->gradient_dtype) == 0))
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "parameter '%.200s': %d is no element type",
                       param->name,
                       (int)(dt_dtype_size(param->dtype) ? param->gradient_dtype : param->dtype));
    if (param->ndim < 0 || param->ndim > DTRAIN_NDIM_MAX || (param->ndim > 0 && !param->shape))
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "parameter '%.200s': ndim is %d, of 0 to %d, and the shape is %s",
                       param->name, param->ndim, DTRAIN_NDIM_MAX, param->shape ? "there" : "NULL");
    dt_signature_t signature = {.kind = DT_KIND_ALLREDUCE, .ndim = (uint8_t)param->ndim};
    /* The widest type, so that neither gradients nor parameters overflow. */
    signature.dtype = DTRAIN_DTYPE_F64;
    for (int i = 0; i < param->ndim; i++)
        signature.shape[i] = param->shape[i];
    *count = dt_signature_count(&signature);
    if (*count < 0 || *count > INT64_MAX / 64)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "parameter '%.200s': an extent is negative, or the shape is too large",
                       param->name);
    return DTRAIN_OK;
}

static dtrain_status_t copy_param(dt_grad_slice_t *slice, const dtrain_param_t *param,
                                  int64_t count)
{
    size_t ndim = (size_t)param->ndim;
    slice->count = count;
    slice->ndim = param->ndim;
    slice->name = dt_strdup(param->name);
    slice->shape = dt_alloc((ndim + 1) * sizeof *slice->shape);
    if (!slice->name || !slice->shape)
        return no_memory();
    for (size_t i = 0; i < ndim; i++)
        slice->shape[i] = param->shape[i];
    return DTRAIN_OK;
}

static dtrain_status_t check_names(const dt_grad_layout_t *layout)
{
    dt_map_t names = {0};
    dtrain_status_t status = DTRAIN_OK;
    for (int i = 0; i < layout->n && status == DTRAIN_OK; i++) {
        char *name = layout->slices[i].name;
        if (dt_map_get(&names, name, strlen(name)))
            status =
                dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "two parameters have the name '%.200s'", name);
        else if (dt_map_add(&names, name, strlen(name), name))
            status = no_memory();
    }
    dt_map_free(&names);
    return status;
}

dtrain_status_t dt_grad_order_check(const int32_t *order, int n)
{
    dtrain_status_t status = DTRAIN_OK;
    char *seen = dt_calloc((size_t)n + 1, 1);
    if (!seen)
        return no_memory();
    for (int i = 0; i < n && status == DTRAIN_OK; i++) {
        int32_t index = order[i];
        if (index < 0 || index >= n || seen[index])
            status = dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                             "the order of gradients has %d at place %d: not each of 0 to %d once",
                             (int)index, i, n - 1);
        else
            seen[index] = 1;
    }
    dt_free(seen);
    return status;
}

static dtrain_status_t take_order(dt_grad_layout_t *layout, const int32_t *order)
{
    for (int i = 0; i < layout->n; i++)
        layout->order[i] = order ? order[i] : layout->n - 1 - i;
    return dt_grad_order_check(layout->order, layout->n);
}

/* The region of a parameter's types, made when there is none. -1: too many. */
static int find_region(dt_grad_layout_t *layout, const dtrain_param_t *param)
{
    dtrain_dtype_t dtype = param->gradient_dtype ? param->gradient_dtype : param->dtype;
    for (int i = 0; i < layout->num_regions; i++) {
        if (layout->regions[i].dtype == dtype && layout->regions[i].param_dtype == param->dtype)
            return i;
    }
    if (layout->num_regions == DT_GRAD_REGIONS_MAX)
        return -1;
    layout->regions[layout->num_regions] =
        (dt_grad_region_t){.dtype = dtype, .param_dtype = param->dtype};
    return layout->num_regions++;
}

/* Puts the slices of a region behind each other. */
static void placeslices(dt_grad_layout_t *layout, int number)
{
    dt_grad_region_t *region = &layout->regions[number];
    size_t size = dt_dtype_size(region->dtype), param_size = dt_dtype_size(region->param_dtype);
    int64_t align = (int64_t)(ALIGNMENT / (size < param_size ? size : param_size));
    int64_t begin = layout->num_blocks * DT_NORM_BLOCK, end = begin;
    for (int i = 0; i < layout->n; i++) {
        dt_grad_slice_t *slice = &layout->slices[layout->order[i]];
        if (slice->region != number)
            continue;
        slice->first = end;
        end += (slice->count + align - 1) / align * align;
    }
    region->first_block = layout->num_blocks;
    region->num_blocks = dt_norm_blocks(end - begin);
    region->offset = layout->bytes;
    region->param_offset = layout->param_bytes;
    size_t elements = (size_t)region->num_blocks * DT_NORM_BLOCK;
    layout->num_blocks += region->num_blocks;
    layout->bytes += elements * size;
    layout->param_bytes += elements * param_size;
}

/* Regions lie behind each other, so the order of places is by region first; stable. */
static dtrain_status_t sort_order(dt_grad_layout_t *layout)
{
    int32_t *sorted = dt_alloc(((size_t)layout->n + 1) * sizeof *sorted);
    int count = 0;
    if (!sorted)
        return no_memory();
    for (int region = 0; region < layout->num_regions; region++) {
        for (int i = 0; i < layout->n; i++) {
            if (layout->slices[layout->order[i]].region == region)
                sorted[count++] = layout->order[i];
        }
    }
    dt_free(layout->order);
    layout->order = sorted;
    return DTRAIN_OK;
}

static dtrain_status_t fill(dt_grad_layout_t *layout, const dtrain_param_t *params,
                            const int32_t *order)
{
    for (int i = 0; i < layout->n; i++) {
        int64_t count = 0;
        dtrain_status_t status = check_param(&params[i], i, &count);
        if (status == DTRAIN_OK)
            status = copy_param(&layout->slices[i], &params[i], count);
        if (status != DTRAIN_OK)
            return status;
    }
    dtrain_status_t status = check_names(layout);
    if (status == DTRAIN_OK)
        status = take_order(layout, order);
    for (int i = 0; i < layout->n && status == DTRAIN_OK; i++) {
        int32_t index = layout->order[i];
        int region = find_region(layout, &params[index]);
        layout->slices[index].region = region;
        if (region < 0)
            status = dt_fail(DTRAIN_ERR_UNSUPPORTED,
                             "the parameters have more than %d pairs of types of their own and of "
                             "their gradients",
                             DT_GRAD_REGIONS_MAX);
    }
    if (status == DTRAIN_OK)
        status = sort_order(layout);
    for (int i = 0; i < layout->num_regions && status == DTRAIN_OK; i++)
        placeslices(layout, i);
    return status;
}

dtrain_status_t dt_grad_layout_make(dt_grad_layout_t *layout, const dtrain_param_t *params, int n,
                                    const int32_t *order)
{
    memset(layout, 0, sizeof *layout);
    if (n < 0 || (n > 0 && !params))
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%d parameters%s", n,
                       params ? "" : ", and the array is NULL");
    layout->n = n;
    layout->slices = dt_calloc((size_t)n + 1, sizeof *layout->slices);
    layout->order = dt_calloc((size_t)n + 1, sizeof *layout->order);
    dtrain_status_t status =
        layout->slices && layout->order ? fill(layout, params, order) : no_memory();
    if (status != DTRAIN_OK)
        dt_grad_layout_free(layout);
    return status;
}

void dt_grad_layout_free(dt_grad_layout_t *layout)
{
    for (int i = 0; i < layout->n && layout->slices; i++) {
        dt_free(layout->slices[i].name);
        dt_free(layout->slices[i].shape);
    }
    dt_free(layout->slices);
    dt_free(layout->order);
    memset(layout, 0, sizeof *layout);
}

const dt_grad_region_t *dt_grad_region_of(const dt_grad_layout_t *layout, int64_t block)
{
    const dt_grad_region_t *region = layout->regions;
    while (block >= region->first_block + region->num_blocks)
        region++;
    return region;
}

size_t dt_grad_offset(const dt_grad_region_t *region, int64_t element)
{
    size_t from = (size_t)(element - region->first_block * DT_NORM_BLOCK);
    return region->offset + from * dt_dtype_size(region->dtype);
}

size_t dt_grad_param_offset(const dt_grad_region_t *region, int64_t element)
{
    size_t from = (size_t)(element - region->first_block * DT_NORM_BLOCK);
    return region->param_offset + from * dt_dtype_size(region->param_dtype);
}

/* ---- Segments --------------------------------------------------------------------------- */

/* The slice at a place, cut to [begin, end). */
static dt_grad_segment_t cut(const dt_grad_layout_t *layout, int64_t place, int64_t begin,
                             int64_t end)
{
    int index = layout->order[place];
    const dt_grad_slice_t *slice = &layout->slices[index];
    int64_t lo = slice->first > begin ? slice->first : begin;
    int64_t hi = slice->first + slice->count < end ? slice->first + slice->count : end;
    return (dt_grad_segment_t){.index = index,
                               .begin = lo - slice->first,
                               .count = hi > lo ? hi - lo : 0,
                               .first = lo,
                               .place = place};
}

/* The first segment at `place` or behind that is not empty. */
static dt_grad_segment_t seek(const dt_grad_layout_t *layout, int64_t place, int64_t begin,
                              int64_t end)
{
    for (; place < layout->n; place++) {
        if (layout->slices[layout->order[place]].first >= end)
            break;
        dt_grad_segment_t segment = cut(layout, place, begin, end);
        if (segment.count > 0)
            return segment;
    }
    return (dt_grad_segment_t){.index = -1, .place = layout->n};
}

dt_grad_segment_t dt_grad_segment_first(const dt_grad_layout_t *layout, int64_t begin, int64_t end)
{
    /* The last slice that begins at `begin` or before, or an empty one at the same place. */
    int64_t low = 0, high = layout->n;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (layout->slices[layout->order[middle]].first <= begin)
            low = middle;
        else
            high = middle;
    }
    /* Empty ones share their place with the one behind. */
    while (low > 0 && layout->slices[layout->order[low]].first == begin &&
           layout->slices[layout->order[low - 1]].first == begin)
        low--;
    return seek(layout, low, begin, end);
}

void dt_grad_segment_next(const dt_grad_layout_t *layout, int64_t end, dt_grad_segment_t *segment)
{
    *segment = seek(layout, segment->place + 1, segment->first, end);
}
