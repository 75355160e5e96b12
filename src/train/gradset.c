#include "train/gradset.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/share.h"
#include "base/status.h"
#include "core/completion.h"
#include "core/stranded.h"
#include "train/grad_device.h"
#include "train/gradset_step.h"

/* Within a node that shares memory all sizes from 0.5 to 64 MiB take the same to a few percent;
 * over a network small ones cost messages, and large ones begin late. */
#define FIRST_BUCKET_BYTES (INT64_C(1) << 20)
#define BUCKET_BYTES (INT64_C(8) << 20)

static dtrain_status_t no_memory(void)
{
    return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a gradient set");
}

/* ---- Create ------------------------------------------------------------------------------- */

/* Of dtrain_gradset_desc_t as it was at first. */
#define DESC_FIRST_SIZE offsetof(dtrain_gradset_desc_t, device)

static int32_t device_of(const dtrain_gradset_desc_t *desc)
{
    return desc->struct_size >= sizeof *desc ? desc->device : DTRAIN_DEVICE_CPU;
}

static dtrain_status_t check_device(const dtrain_gradset_desc_t *desc)
{
    int32_t device = device_of(desc);
    if (desc->struct_size >= sizeof *desc && desc->reserved2 != 0)
        return dt_fail(DTRAIN_ERR_UNSUPPORTED, "dtrain_gradset_desc_t: reserved2 is not 0");
    if (device != DTRAIN_DEVICE_CPU && device != DTRAIN_DEVICE_CUDA)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "dtrain_gradset_desc_t: there is no device %d",
                       device);
    return DTRAIN_OK;
}

static dtrain_status_t check_desc(const dtrain_gradset_desc_t *desc)
{
    if (desc->struct_size < DESC_FIRST_SIZE)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "dtrain_gradset_desc_t: struct_size is %u, not %zu: set it to sizeof",
                       desc->struct_size, sizeof *desc);
    if (desc->op != DTRAIN_OP_SUM && desc->op != DTRAIN_OP_AVERAGE)
        return dt_fail(DTRAIN_ERR_UNSUPPORTED,
                       "dtrain_gradset_desc_t: op %d: a gradient set adds up or averages",
                       (int)desc->op);
    if (desc->bucket_bytes < 0 || desc->first_bucket_bytes < 0)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "dtrain_gradset_desc_t: a size of buckets is negative");
    if (desc->timeout_ms < -1)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "dtrain_gradset_desc_t: timeout_ms is %d",
                       desc->timeout_ms);
    if (desc->reserved != 0)
        return dt_fail(DTRAIN_ERR_UNSUPPORTED, "dtrain_gradset_desc_t: reserved is not 0");
    return check_device(desc);
}

static dt_grad_terms_t terms_of(const dtrain_gradset_desc_t *desc)
{
    dt_grad_terms_t terms = {.op = desc->op,
                             .is_order_fixed = desc->fixed_order != 0,
                             .device = device_of(desc),
                             .prescale = desc->prescale != 0 ? desc->prescale : 1,
                             .postscale = desc->postscale != 0 ? desc->postscale : 1,
                             .first_bucket_bytes = FIRST_BUCKET_BYTES,
                             .bucket_bytes = BUCKET_BYTES};
    if (desc->bucket_bytes > 0)
        terms.bucket_bytes = desc->bucket_bytes;
    if (desc->first_bucket_bytes > 0)
        terms.first_bucket_bytes = desc->first_bucket_bytes;
    if (terms.first_bucket_bytes > terms.bucket_bytes)
        terms.first_bucket_bytes = terms.bucket_bytes;
    return terms;
}

static dtrain_status_t make_slots(dtrain_gradset_t *set, const dtrain_param_t *params)
{
    set->slots = dt_calloc((size_t)set->layout.n + 1, sizeof *set->slots);
    if (!set->slots)
        return no_memory();
    for (int i = 0; i < set->layout.n; i++) {
        set->slots[i].own = params[i].gradient;
        set->slots[i].data = params[i].data;
        set->is_packed |= params[i].gradient != NULL;
    }
    return DTRAIN_OK;
}

/* Takes the library's codecs over, so that the caller may give them back. */
static dtrain_status_t take_codec(dtrain_gradset_t *set, const dtrain_codec_t *codec)
{
    if (!codec)
        return DTRAIN_OK;
    dtrain_status_t status = dt_codec_check(codec);
    set->codec = codec;
    if (status == DTRAIN_OK && dt_codec_is_own(codec->name)) {
        status = dt_codec_make(codec->name, &set->own_codec);
        set->codec = &set->own_codec.base;
    }
    if (status == DTRAIN_OK)
        memcpy(set->terms.codec, codec->name, strlen(codec->name));
    return status;
}

/* All that needs no other rank. */
static dtrain_status_t fill(dtrain_gradset_t *set, const dtrain_gradset_desc_t *desc,
                            const dtrain_param_t *params, int n)
{
    dt_runtime_t *runtime = set->runtime;
    if (!desc)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "the description of the gradient set is NULL");
    dtrain_status_t status = check_desc(desc);
    if (status != DTRAIN_OK)
        return status;
    set->terms = terms_of(desc);
    set->timeout_ms = desc->timeout_ms;
    set->passes = 1;
    set->is_frozen = set->terms.is_order_fixed || set->talk.size == 1;
    set->name = dt_strdup(desc->name && desc->name[0] ? desc->name : "gradients");
    if (!set->name)
        return no_memory();
    status = take_codec(set, desc->codec);
    if (status != DTRAIN_OK)
        return status;
    status = dt_grad_layout_make(&set->layout, params, n, desc->order);
    if (status == DTRAIN_OK)
        status = make_slots(set, params);
    if (status == DTRAIN_OK && set->terms.device != DTRAIN_DEVICE_CPU)
        status = dt_grad_device_open(set, params, n);
    if (status != DTRAIN_OK)
        return status;
    void *memory = NULL;
    status = dt_user_memory_alloc(&runtime->memory, set->layout.bytes, set->terms.device, &memory);
    set->memory = memory;
    return status;
}

/* A number that no other set of the same ranks has. */
static dtrain_status_t agree_on_id(dtrain_gradset_t *set)
{
    _Atomic int64_t *last = &set->runtime->last_gradset;
    int64_t id = atomic_load(last) + 1;
    dtrain_status_t status = dt_talk_reduce(&set->talk, &id, 1, DTRAIN_DTYPE_I64, DTRAIN_OP_MAX);
    int64_t seen = atomic_load(last);
    while (seen < id && !atomic_compare_exchange_weak(last, &seen, id)) {
    }
    set->id = id;
    /* From now on another thread's set is not met. */
    snprintf(set->own_name, sizeof set->own_name, "gradset %lld", (long long)id);
    set->talk.name = set->own_name;
    return status;
}

static void free_set(dtrain_gradset_t *set, int has_world)
{
    if (has_world) {
        dt_user_memory_free(&set->runtime->memory, set->memory);
        dt_user_memory_free(&set->runtime->memory, set->sums);
        dt_user_memory_free(&set->runtime->memory, set->device_sums);
    }
    dt_gradset_drop_plan(set, has_world);
    dt_grad_layout_free(&set->layout);
    dt_free(set->slots);
    dt_free(set->name);
    dt_free(set);
}

dtrain_status_t dt_gradset_create(dt_runtime_t *runtime, const dtrain_gradset_desc_t *desc,
                                  const dtrain_param_t *params, int n, dtrain_gradset_t **set)
{
    dtrain_status_t status = dt_runtime_may_block(runtime, "dtrain_gradset_create");
    if (status != DTRAIN_OK)
        return status;
    dtrain_gradset_t *made = dt_calloc(1, sizeof *made);
    if (!made)
        return no_memory();
    made->runtime = runtime;
    dtrain_pset_t pset =
        desc && desc->struct_size >= DESC_FIRST_SIZE ? desc->pset : DTRAIN_PSET_WORLD;
    status = dt_talk_begin(&made->talk, runtime, pset, "gradset");
    if (status != DTRAIN_OK) {
        dt_free(made);
        return status;
    }
    status = fill(made, desc, params, n);
    if (status == DTRAIN_OK && !set)
        status = dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "the gradient set's address is NULL");
    status = dt_talk_agree(&made->talk, status);
    if (status == DTRAIN_OK)
        status = dt_grad_match(&made->talk, &made->layout, &made->terms);
    if (status == DTRAIN_OK)
        status = agree_on_id(made);
    /* Its names have the id. */
    if (status == DTRAIN_OK)
        status = dt_talk_agree(&made->talk, dt_gradset_make_plan(made, made->layout.order));
    if (status == DTRAIN_OK && made->device)
        status = dt_grad_device_make_window(made);
    if (status != DTRAIN_OK || !set) {
        free_set(made, 1);
        return status;
    }
    *set = made;
    return DTRAIN_OK;
}

static int nothing_is_in_flight(void *argument)
{
    dtrain_gradset_t *set = argument;
    for (int i = 0; i < set->plan.num_runs; i++) {
        dt_grad_work_t *work = &set->works[i];
        int64_t begun = set->rounds + (atomic_load(&work->missing) == 0);
        if (atomic_load(&work->num_done) < begun)
            return 0;
    }
    return 1;
}

dtrain_status_t dt_gradset_destroy(dtrain_gradset_t *set, int has_world)
{
    if (set->has_optimizer)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "gradient set '%.100s' has an optimizer, which has to be destroyed before",
                       set->name);
    if (has_world) {
        dtrain_status_t status = dt_runtime_may_block(set->runtime, "dtrain_gradset_destroy");
        if (status != DTRAIN_OK)
            return status;
        dt_baton_help(set->runtime, nothing_is_in_flight, set, DT_NEVER);
        /* The thread that is stuck may still write to it. */
        if (dt_is_stranded(set->runtime) && !nothing_is_in_flight(set))
            return dt_stranded_error(set->runtime);
    }
    free_set(set, has_world);
    return DTRAIN_OK;
}

void *dt_gradset_buffer(const dtrain_gradset_t *set, int index)
{
    const dt_grad_slice_t *slice = &set->layout.slices[index];
    if (set->slots[index].own)
        return set->slots[index].own;
    return set->memory + dt_grad_offset(&set->layout.regions[slice->region], slice->first);
}

/* ---- Between steps ------------------------------------------------------------------------ */

dtrain_status_t dt_gradset_check_idle(const dtrain_gradset_t *set, const char *call)
{
    for (int i = 0; i < set->layout.n; i++) {
        if (atomic_load(&set->slots[i].marks) != 0)
            return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                           "%s: gradient set '%.100s': in the middle of a step: '%.200s' is marked",
                           call, set->name, set->layout.slices[i].name);
    }
    return DTRAIN_OK;
}

dtrain_status_t dt_gradset_set_accumulation(dtrain_gradset_t *set, int passes)
{
    if (passes < 1 || passes > DT_GRAD_PASSES_MAX)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%d passes, not 1 to %d", passes,
                       DT_GRAD_PASSES_MAX);
    dtrain_status_t status = dt_gradset_check_idle(set, "dtrain_gradset_set_accumulation");
    if (status == DTRAIN_OK)
        set->passes = (uint32_t)passes;
    return status;
}

dtrain_status_t dt_gradset_enable_sync(dtrain_gradset_t *set, int on)
{
    dtrain_status_t status = dt_gradset_check_idle(set, "dtrain_gradset_sync_enable");
    if (status == DTRAIN_OK)
        atomic_store(&set->is_off, !on);
    return status;
}

void dt_gradset_share(const dtrain_gradset_t *set, int run, int rank, int64_t *begin, int64_t *end)
{
    const dt_grad_run_t *blocks = &set->plan.runs[run];
    int64_t first, last;
    dt_share(blocks->num_blocks, rank, set->talk.size, &first, &last);
    *begin = (blocks->first_block + first) * DT_NORM_BLOCK;
    *end = (blocks->first_block + last) * DT_NORM_BLOCK;
}

int dt_gradset_reduces_to_shares(const dtrain_gradset_t *set)
{
    return set->is_sharded && set->is_frozen;
}

void dt_gradset_describe(const dtrain_gradset_t *set, dtrain_gradset_stats_t *stats)
{
    *stats = (dtrain_gradset_stats_t){.struct_size = sizeof *stats,
                                      .num_params = set->layout.n,
                                      .num_buckets = set->plan.num_runs,
                                      .is_frozen = set->is_frozen,
                                      .bytes = (int64_t)set->layout.bytes,
                                      .steps = set->steps,
                                      .num_missing = set->missed,
                                      .waited_ns = set->waited_ns,
                                      .copied_bytes = atomic_load(&set->copied)};
}
