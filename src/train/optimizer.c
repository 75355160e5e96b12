#include "train/optimizer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/status.h"
#include "reduce/half.h"
#include "train/grad_norm.h"
#include "train/optimizer_device.h"

/* Arrays of state begin on borders of so many bytes. */
#define ALIGNMENT 64

static dtrain_status_t no_memory(void)
{
    return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for an optimizer");
}

/* ---- What is asked for ------------------------------------------------------------------- */

static dtrain_status_t check_user_rule(const dtrain_optimizer_desc_t *desc)
{
    if (!desc->update)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "dtrain_optimizer_desc_t: DTRAIN_RULE_USER, and update is NULL");
    if (desc->num_states < 0 || desc->num_states > DT_OPTIMIZER_STATES_MAX)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "dtrain_optimizer_desc_t: num_states is %d, not 0 to %d", desc->num_states,
                       DT_OPTIMIZER_STATES_MAX);
    return DTRAIN_OK;
}

static dtrain_status_t check_desc(const dtrain_optimizer_desc_t *desc)
{
    if (!desc)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "the description of the optimizer is NULL");
    if (desc->struct_size < sizeof *desc)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "dtrain_optimizer_desc_t: struct_size is %u, not %zu: set it to sizeof",
                       desc->struct_size, sizeof *desc);
    if (desc->rule < DTRAIN_RULE_SGD || desc->rule > DTRAIN_RULE_USER)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "dtrain_optimizer_desc_t: %d is no rule",
                       desc->rule);
    if (!(desc->max_norm >= 0) || !(desc->loss_scale >= 0) || !isfinite(desc->loss_scale))
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "dtrain_optimizer_desc_t: max_norm is %g and loss_scale is %g: neither may "
                       "be negative, nor the second infinite",
                       desc->max_norm, desc->loss_scale);
    if (desc->growth_interval < -1)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "dtrain_optimizer_desc_t: growth_interval is %d", desc->growth_interval);
    return desc->rule == DTRAIN_RULE_USER ? check_user_rule(desc) : DTRAIN_OK;
}

/* 0 stands for the default, and what is negative for 0. */
static double or_default(double value, double usual)
{
    return value == 0 ? usual : value < 0 ? 0 : value;
}

static dt_update_settings_t settings_of(const dtrain_optimizer_desc_t *desc)
{
    static const dt_update_rule_t rules[] = {[DTRAIN_RULE_SGD] = DT_UPDATE_SGD,
                                             [DTRAIN_RULE_ADAM] = DT_UPDATE_ADAM,
                                             [DTRAIN_RULE_ADAMW] = DT_UPDATE_ADAMW};
    dt_update_settings_t settings = {.weight_decay = desc->weight_decay};
    if (desc->rule == DTRAIN_RULE_USER)
        return settings;
    settings.rule = rules[desc->rule];
    settings.nesterov = desc->nesterov != 0;
    settings.momentum = desc->momentum;
    settings.beta1 = or_default(desc->beta1, 0.9);
    settings.beta2 = or_default(desc->beta2, 0.999);
    settings.epsilon = or_default(desc->epsilon, 1e-8);
    return settings;
}

/* What update.h can do, and a user's rule without the help of rounded copies. */
static dtrain_status_t check_types(const dtrain_optimizer_t *optimizer)
{
    const dt_grad_layout_t *layout = &optimizer->set->layout;
    for (int i = 0; i < layout->n; i++) {
        const dt_grad_region_t *region = &layout->regions[layout->slices[i].region];
        dtrain_dtype_t dtype = region->param_dtype, gradient = region->dtype;
        int is_half = dtype == DTRAIN_DTYPE_F16 || dtype == DTRAIN_DTYPE_BF16;
        int fits = dtype == DTRAIN_DTYPE_F64
                       ? gradient == DTRAIN_DTYPE_F64
                       : (dtype == DTRAIN_DTYPE_F32 || is_half) && dt_dtype_is_float(gradient) &&
                             gradient != DTRAIN_DTYPE_F64;
        if (!fits || (is_half && optimizer->desc.rule == DTRAIN_RULE_USER))
            return dt_fail(DTRAIN_ERR_UNSUPPORTED, "parameter '%.200s': %s with gradients of %s%s",
                           layout->slices[i].name, dt_dtype_name(dtype), dt_dtype_name(gradient),
                           fits ? ", and a rule of the user's" : "");
    }
    return DTRAIN_OK;
}

/* ---- Create ------------------------------------------------------------------------------- */

/* Where each parameter lies; the library's memory where the caller has none. */
static dtrain_status_t place_params(dtrain_optimizer_t *optimizer)
{
    dtrain_gradset_t *set = optimizer->set;
    const dt_grad_layout_t *layout = &set->layout;
    int is_own = 0;
    optimizer->data = dt_calloc((size_t)layout->n + 1, sizeof *optimizer->data);
    if (!optimizer->data)
        return no_memory();
    for (int i = 0; i < layout->n; i++) {
        optimizer->data[i] = set->slots[i].data;
        optimizer->is_packed |= set->slots[i].data != NULL;
        is_own |= set->slots[i].data == NULL;
    }
    if (!is_own && !optimizer->is_sharded)
        return DTRAIN_OK;
    void *memory = NULL;
    dtrain_status_t status = dt_user_memory_alloc(&set->runtime->memory, layout->param_bytes,
                                                  set->terms.device, &memory);
    optimizer->memory = memory;
    for (int i = 0; i < layout->n && status == DTRAIN_OK; i++) {
        const dt_grad_slice_t *slice = &layout->slices[i];
        if (!optimizer->data[i])
            optimizer->data[i] =
                optimizer->memory +
                dt_grad_param_offset(&layout->regions[slice->region], slice->first);
    }
    return status;
}

static dtrain_status_t fill(dtrain_optimizer_t *optimizer, const dtrain_optimizer_desc_t *desc)
{
    dtrain_status_t status = check_desc(desc);
    if (status != DTRAIN_OK)
        return status;
    dtrain_gradset_t *set = optimizer->set;
    optimizer->desc = *desc;
    optimizer->settings = settings_of(desc);
    optimizer->is_sharded = desc->sharded && set->talk.size > 1;
    optimizer->loss_scale = desc->loss_scale > 0 ? desc->loss_scale : 1;
    optimizer->seen = set->steps;
    if (desc->rule == DTRAIN_RULE_USER) {
        optimizer->num_states = desc->num_states;
    } else {
        status = dt_update_check(&optimizer->settings);
        optimizer->num_states = dt_update_num_states(&optimizer->settings);
    }
    if (status == DTRAIN_OK && set->has_optimizer)
        status = dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "gradient set '%.100s' has an optimizer",
                         set->name);
    if (status == DTRAIN_OK && desc->sharded && set->codec)
        status = dt_fail(DTRAIN_ERR_UNSUPPORTED,
                         "gradient set '%.100s' has the codec %.60s, which shares cannot travel by",
                         set->name, set->codec->name);
    if (status == DTRAIN_OK)
        status = dt_gradset_check_idle(set, "dtrain_optimizer_create");
    if (status == DTRAIN_OK)
        status = check_types(optimizer);
    if (status == DTRAIN_OK)
        status = place_params(optimizer);
    if (status == DTRAIN_OK && dt_optimizer_needs_norm(optimizer))
        status = dt_grad_norm_prepare(set);
    return status;
}

/* Settings of which each rank's have to be the first rank's. */
static dtrain_status_t match(const dtrain_optimizer_t *optimizer)
{
    static const char *const names[] = {
        "rule",  "sharded", "nesterov", "num_states", "momentum",   "weight_decay",
        "beta1", "beta2",   "epsilon",  "max_norm",   "loss_scale", "growth_interval"};
    enum { COUNT = sizeof names / sizeof names[0] };
    const dtrain_optimizer_desc_t *desc = &optimizer->desc;
    const dt_talk_t *talk = &optimizer->set->talk;
    const double own[COUNT] = {desc->rule,       desc->sharded != 0, desc->nesterov != 0,
                               desc->num_states, desc->momentum,     desc->weight_decay,
                               desc->beta1,      desc->beta2,        desc->epsilon,
                               desc->max_norm,   desc->loss_scale,   desc->growth_interval};
    double first[COUNT];
    memcpy(first, own, sizeof first);
    dtrain_status_t status = dt_talk_broadcast(talk, first, sizeof first, talk->root);
    if (status != DTRAIN_OK)
        return status;
    for (int i = 0; i < COUNT && status == DTRAIN_OK; i++) {
        if (own[i] != first[i])
            status = dt_fail(DTRAIN_ERR_MISMATCH,
                             "the optimizer: %s is %.17g here, and %.17g on rank %d", names[i],
                             own[i], first[i], talk->root);
    }
    return dt_talk_agree(talk, status);
}

dtrain_status_t dt_optimizer_create(dtrain_gradset_t *set, const dtrain_optimizer_desc_t *desc,
                                    dtrain_optimizer_t **optimizer)
{
    dtrain_status_t status = dt_runtime_may_block(set->runtime, "dtrain_optimizer_create");
    if (status != DTRAIN_OK)
        return status;
    dtrain_optimizer_t *made = dt_calloc(1, sizeof *made);
    if (!made)
        return no_memory();
    made->set = set;
    status = fill(made, desc);
    if (status == DTRAIN_OK && !optimizer)
        status = dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "the optimizer's address is NULL");
    status = dt_talk_agree(&set->talk, status);
    if (status == DTRAIN_OK)
        status = match(made);
    if (status != DTRAIN_OK || !optimizer) {
        dt_optimizer_free(made, 1);
        return status;
    }
    set->has_optimizer = 1;
    set->is_sharded = made->is_sharded;
    *optimizer = made;
    return DTRAIN_OK;
}

/* `has_world` 0: the world took its device's memory with it. */
static void drop_parts(dtrain_optimizer_t *optimizer, int has_world)
{
    for (int i = 0; i < optimizer->num_parts; i++)
        dt_free(optimizer->parts[i].name);
    dt_free(optimizer->parts);
    if (!optimizer->set->device)
        dt_free(optimizer->arena);
    else if (has_world)
        dt_user_memory_free(&optimizer->set->runtime->memory, optimizer->arena);
    optimizer->parts = NULL;
    optimizer->arena = NULL;
    optimizer->num_parts = 0;
}

void dt_optimizer_free(dtrain_optimizer_t *optimizer, int has_world)
{
    if (has_world)
        dt_optimizer_drop_trail(optimizer);
    if (has_world)
        dt_user_memory_free(&optimizer->set->runtime->memory, optimizer->memory);
    drop_parts(optimizer, has_world);
    dt_free(optimizer->data);
    dt_free(optimizer);
}

void dt_optimizer_destroy(dtrain_optimizer_t *optimizer, int has_world)
{
    optimizer->set->has_optimizer = 0;
    optimizer->set->is_sharded = 0;
    dt_optimizer_free(optimizer, has_world);
}

/* ---- Parts -------------------------------------------------------------------------------- */

static size_t round_up(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int is_half(dtrain_dtype_t dtype)
{
    return dtype == DTRAIN_DTYPE_F16 || dtype == DTRAIN_DTYPE_BF16;
}

size_t dt_optimizer_deal_out(const dtrain_optimizer_t *optimizer, dt_optimizer_part_t *part,
                             int has_master, uint8_t *memory)
{
    size_t bytes = round_up((size_t)(part->end - part->begin) * dt_dtype_size(part->dtype));
    for (int i = 0; i < optimizer->num_states && memory; i++)
        part->state[i] = memory + (size_t)i * bytes;
    if (has_master && memory)
        part->master = (float *)(void *)(memory + (size_t)optimizer->num_states * bytes);
    return bytes * (size_t)(optimizer->num_states + (has_master != 0));
}

static void widen(dtrain_dtype_t dtype, const uint16_t *from, float *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = dtype == DTRAIN_DTYPE_F16 ? dt_f16_to_f32(from[i]) : dt_bf16_to_f32(from[i]);
}

/* Of one slice of a part. */
static dtrain_status_t widen_segment(const dtrain_optimizer_t *optimizer,
                                     const dt_optimizer_part_t *part,
                                     const dt_grad_segment_t *segment)
{
    const dt_grad_layout_t *layout = &optimizer->set->layout;
    dtrain_dtype_t dtype = layout->regions[layout->slices[segment->index].region].param_dtype;
    const uint16_t *from = (const uint16_t *)optimizer->data[segment->index] + segment->begin;
    float *to = part->master + (segment->first - part->begin);
    if (!optimizer->set->device) {
        widen(dtype, from, to, segment->count);
        return DTRAIN_OK;
    }
    /* Once a training: by way of the host. */
    size_t count = (size_t)segment->count;
    uint16_t *rounded = dt_alloc(count * sizeof *rounded);
    float *wide = dt_alloc(count * sizeof *wide);
    dtrain_status_t status = rounded && wide ? DTRAIN_OK : no_memory();
    if (status == DTRAIN_OK)
        status = dt_optimizer_transfer(optimizer, rounded, from, count * sizeof *rounded);
    if (status == DTRAIN_OK) {
        widen(dtype, rounded, wide, segment->count);
        status = dt_optimizer_transfer(optimizer, to, wide, count * sizeof *wide);
    }
    dt_free(rounded);
    dt_free(wide);
    return status;
}

dtrain_status_t dt_optimizer_take_masters(dtrain_optimizer_t *optimizer)
{
    const dt_grad_layout_t *layout = &optimizer->set->layout;
    dtrain_status_t status = DTRAIN_OK;
    for (int i = 0; i < optimizer->num_parts; i++) {
        dt_optimizer_part_t *part = &optimizer->parts[i];
        if (!part->master || part->begin == part->end)
            continue;
        dt_grad_segment_t segment = dt_grad_segment_first(layout, part->begin, part->end);
        for (; segment.count > 0 && status == DTRAIN_OK;
             dt_grad_segment_next(layout, part->end, &segment))
            status = widen_segment(optimizer, part, &segment);
    }
    return status;
}

/* Names as runs have (gradset_step.c), of the parameters. */
static char *name_gather(const dtrain_gradset_t *set, int run)
{
    char text[64];
    snprintf(text, sizeof text, "dtrain.parameters %lld.%d.%d", (long long)set->id,
             set->plan_number, run);
    return dt_strdup(text);
}

/* Zeroed. */
static dtrain_status_t make_arena(dtrain_optimizer_t *optimizer, size_t bytes)
{
    const dtrain_gradset_t *set = optimizer->set;
    if (set->device)
        return dt_user_memory_alloc(&set->runtime->memory, bytes, set->terms.device,
                                    &optimizer->arena);
    optimizer->arena = dt_alloc_aligned(4096, bytes > 0 ? bytes : 1);
    if (!optimizer->arena)
        return no_memory();
    memset(optimizer->arena, 0, bytes);
    return DTRAIN_OK;
}

static dtrain_status_t make_parts(dtrain_optimizer_t *optimizer)
{
    dtrain_gradset_t *set = optimizer->set;
    int count = set->plan.num_runs;
    size_t bytes = 0;
    optimizer->parts = dt_calloc((size_t)count + 1, sizeof *optimizer->parts);
    if (!optimizer->parts)
        return no_memory();
    optimizer->num_parts = count;
    for (int i = 0; i < count; i++) {
        dt_optimizer_part_t *part = &optimizer->parts[i];
        const dt_grad_run_t *run = &set->plan.runs[i];
        const dt_grad_region_t *region = dt_grad_region_of(&set->layout, run->first_block);
        part->begin = dt_grad_run_begin(run);
        part->end = dt_grad_run_end(run);
        if (optimizer->is_sharded)
            dt_gradset_share(set, i, set->talk.rank, &part->begin, &part->end);
        part->dtype = region->param_dtype == DTRAIN_DTYPE_F64 ? DTRAIN_DTYPE_F64 : DTRAIN_DTYPE_F32;
        part->name = name_gather(set, i);
        if (!part->name)
            return no_memory();
        bytes += dt_optimizer_deal_out(optimizer, part, is_half(region->param_dtype), NULL);
    }
    dtrain_status_t status = make_arena(optimizer, bytes);
    if (status != DTRAIN_OK)
        return status;
    uint8_t *memory = optimizer->arena;
    for (int i = 0; i < count; i++) {
        const dt_grad_run_t *run = &set->plan.runs[i];
        const dt_grad_region_t *region = dt_grad_region_of(&set->layout, run->first_block);
        memory += dt_optimizer_deal_out(optimizer, &optimizer->parts[i],
                                        is_half(region->param_dtype), memory);
    }
    optimizer->state_bytes = (int64_t)bytes;
    return dt_optimizer_take_masters(optimizer);
}

dtrain_status_t dt_optimizer_make_parts(dtrain_optimizer_t *optimizer)
{
    dtrain_status_t status = dt_talk_agree(&optimizer->set->talk, make_parts(optimizer));
    if (status != DTRAIN_OK)
        drop_parts(optimizer, 1);
    return status;
}

int dt_optimizer_needs_norm(const dtrain_optimizer_t *optimizer)
{
    return optimizer->desc.max_norm > 0 || optimizer->desc.loss_scale > 0;
}
