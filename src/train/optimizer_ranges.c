#include "train/optimizer_ranges.h"

#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "train/optimizer_device.h"

void dt_ranges_free(dt_ranges_t *list)
{
    for (int i = 0; i < list->count; i++) {
        dt_free(list->names[i]);
        if (list->places[i])
            dt_free(list->tensors[i].data);
    }
    dt_free(list->names);
    dt_free(list->places);
    dt_free(list->tensors);
    memset(list, 0, sizeof *list);
}

static int grow(dt_ranges_t *list)
{
    int capacity = list->capacity ? 2 * list->capacity : 64;
    dt_state_tensor_t *tensors = dt_realloc(list->tensors, (size_t)capacity * sizeof *tensors);
    if (tensors)
        list->tensors = tensors;
    char **names = dt_realloc(list->names, (size_t)capacity * sizeof *names);
    if (names)
        list->names = names;
    void **places = dt_realloc(list->places, (size_t)capacity * sizeof *places);
    if (places)
        list->places = places;
    if (!tensors || !names || !places)
        return -1;
    list->capacity = capacity;
    return 0;
}

/* `kind` and `name` make up the tensor's name. */
static void add(dt_ranges_t *list, const char *kind, const char *name,
                const dt_state_tensor_t *tensor)
{
    char text[DTRAIN_NAME_MAX + 32];
    snprintf(text, sizeof text, "%s%s", kind, name);
    char *copy = list->failed ? NULL : dt_strdup(text);
    if (!copy || (list->count == list->capacity && grow(list))) {
        dt_free(copy);
        list->failed = 1;
        return;
    }
    list->names[list->count] = copy;
    list->places[list->count] = NULL;
    list->tensors[list->count] = *tensor;
    list->tensors[list->count++].name = copy;
}

/* What lies on a GPU gets a copy in host memory, which is not filled yet. */
static void bounce(dt_ranges_t *list, const dt_grad_segment_t *segment, dtrain_dtype_t dtype)
{
    if (list->failed || segment->count == 0)
        return;
    dt_state_tensor_t *last = &list->tensors[list->count - 1];
    void *copy = dt_alloc((size_t)segment->count * dt_dtype_size(dtype));
    list->failed = !copy;
    if (!copy)
        return;
    list->places[list->count - 1] = last->data;
    last->data = copy;
}

dtrain_status_t dt_ranges_move(const dtrain_optimizer_t *optimizer, dt_ranges_t *list, int is_back)
{
    dtrain_status_t status = DTRAIN_OK;
    for (int i = 0; i < list->count && status == DTRAIN_OK; i++) {
        const dt_state_tensor_t *tensor = &list->tensors[i];
        void *place = list->places[i];
        size_t bytes = (size_t)(tensor->end - tensor->begin) * dt_dtype_size(tensor->dtype);
        if (place)
            status = dt_optimizer_transfer(optimizer, is_back ? place : tensor->data,
                                           is_back ? tensor->data : place, bytes);
    }
    return status;
}

void dt_ranges_add_segment(dt_ranges_t *list, const char *kind, const dt_grad_slice_t *slice,
                           const dt_grad_segment_t *segment, dtrain_dtype_t dtype, void *data,
                           int is_there)
{
    const dt_state_tensor_t tensor = {.dtype = dtype,
                                      .ndim = slice->ndim,
                                      .shape = slice->shape,
                                      .begin = segment->begin,
                                      .end = segment->begin + segment->count,
                                      .data = data};
    add(list, kind, slice->name, &tensor);
    if (is_there)
        bounce(list, segment, dtype);
}

void dt_ranges_add_run(dt_ranges_t *list, const dtrain_optimizer_t *optimizer,
                       const dt_optimizer_part_t *part, int64_t begin, int64_t end, int with_params)
{
    static const char *const kinds[] = {"state0/", "state1/", "state2/", "state3/"};
    const dt_grad_layout_t *layout = &optimizer->set->layout;
    int is_there = optimizer->set->device != NULL;
    int is_state_there = is_there && !part->memory;
    size_t size = dt_dtype_size(part->dtype);
    dt_grad_segment_t segment = dt_grad_segment_first(layout, begin, end);
    for (; segment.count > 0; dt_grad_segment_next(layout, end, &segment)) {
        const dt_grad_slice_t *slice = &layout->slices[segment.index];
        dtrain_dtype_t dtype = layout->regions[slice->region].param_dtype;
        size_t place = (size_t)(segment.first - part->begin);
        if (with_params)
            dt_ranges_add_segment(list, "param/", slice, &segment, dtype,
                                  (uint8_t *)optimizer->data[segment.index] +
                                      (size_t)segment.begin * dt_dtype_size(dtype),
                                  is_there);
        for (int i = 0; i < optimizer->num_states; i++)
            dt_ranges_add_segment(list, kinds[i], slice, &segment, part->dtype,
                                  part->state[i] + place * size, is_state_there);
        if (part->master)
            dt_ranges_add_segment(list, "master/", slice, &segment, DTRAIN_DTYPE_F32,
                                  part->master + place, is_state_there);
    }
}

void dt_ranges_add_empty(dt_ranges_t *list, const dtrain_optimizer_t *optimizer)
{
    const dt_grad_layout_t *layout = &optimizer->set->layout;
    const dt_grad_segment_t none = {0};
    for (int i = 0; i < layout->n; i++) {
        const dt_grad_slice_t *slice = &layout->slices[i];
        if (slice->count == 0)
            dt_ranges_add_segment(list, "param/", slice, &none,
                                  layout->regions[slice->region].param_dtype, NULL, 0);
    }
}

void dt_ranges_add_extras(dt_ranges_t *list, dt_extras_t *extras)
{
    const dt_state_tensor_t numbers = {.dtype = DTRAIN_DTYPE_F64,
                                       .ndim = 1,
                                       .shape = &extras->numbers_shape,
                                       .end = extras->numbers_shape,
                                       .data = extras->numbers};
    const dt_state_tensor_t order = {.dtype = DTRAIN_DTYPE_I32,
                                     .ndim = 1,
                                     .shape = &extras->order_shape,
                                     .end = extras->order_shape,
                                     .data = extras->order};
    add(list, DT_NAME_NUMBERS, "", &numbers);
    add(list, DT_NAME_ORDER, "", &order);
}

dt_extras_t dt_extras_of(const dtrain_optimizer_t *optimizer)
{
    dt_extras_t extras = {.numbers_shape = DT_NUMBERS,
                          .order_shape = optimizer->set->layout.n,
                          .order = optimizer->set->order};
    extras.numbers[DT_NUMBER_FORM] = DT_SAVE_FORM;
    extras.numbers[DT_NUMBER_RULE] = optimizer->desc.rule;
    extras.numbers[DT_NUMBER_STATES] = optimizer->num_states;
    extras.numbers[DT_NUMBER_SCALE] = optimizer->loss_scale;
    extras.numbers[DT_NUMBER_GOOD] = (double)optimizer->num_good;
    return extras;
}
