/* optimizer_file.c - parameters and state of an optimizer to a file and back. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/status.h"
#include "train/optimizer_device.h"
#include "train/optimizer_ranges.h"
#include "train/optimizer_state.h"

/* ---- Save ----------------------------------------------------------------------------------- */

static dtrain_status_t write_list(const dtrain_optimizer_t *optimizer, const char *path,
                                  const dt_state_save_t *save, dt_ranges_t *list)
{
    dtrain_status_t status =
        list->failed ? dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for what is to be saved")
                     : dt_ranges_move(optimizer, list, 0);
    if (status == DTRAIN_OK)
        status = dt_state_write(path, save, list->tensors, list->count);
    dt_ranges_free(list);
    return status;
}

/* Each rank writes its share of each run, the first one also what is not by element. */
static dtrain_status_t save_in_shards(dtrain_optimizer_t *optimizer, const char *path,
                                      const dt_state_save_t *save)
{
    dtrain_gradset_t *set = optimizer->set;
    dt_ranges_t list = {0};
    dt_extras_t extras = dt_extras_of(optimizer);
    for (int run = 0; run < optimizer->num_parts; run++) {
        int64_t begin, end;
        dt_gradset_share(set, run, set->talk.rank, &begin, &end);
        dt_ranges_add_run(&list, optimizer, &optimizer->parts[run], begin, end, 1);
    }
    if (set->talk.rank == 0) {
        dt_ranges_add_extras(&list, &extras);
        dt_ranges_add_empty(&list, optimizer);
    }
    dtrain_status_t status = dt_talk_agree(&set->talk, write_list(optimizer, path, save, &list));
    if (status == DTRAIN_OK && set->talk.rank == 0)
        status = dt_state_write_index(path, save);
    return dt_talk_agree(&set->talk, status);
}

/* ---- Whole runs ------------------------------------------------------------------------------ */

/* Memory for the state of a run, whole, where ranks have shares of it. 0, or -1. */
static int make_whole(const dtrain_optimizer_t *optimizer, int run, dt_optimizer_part_t *whole)
{
    const dt_grad_run_t *blocks = &optimizer->set->plan.runs[run];
    const dt_optimizer_part_t *part = &optimizer->parts[run];
    *whole = (dt_optimizer_part_t){
        .begin = dt_grad_run_begin(blocks), .end = dt_grad_run_end(blocks), .dtype = part->dtype};
    int has_master = part->master != NULL;
    size_t bytes = dt_optimizer_deal_out(optimizer, whole, has_master, NULL);
    whole->memory = dt_calloc(1, bytes + 1);
    if (!whole->memory)
        return -1;
    dt_optimizer_deal_out(optimizer, whole, has_master, whole->memory);
    return 0;
}

/* An array of a part's state by its number; the masters are the last. NULL: there are no more. */
static void *array_of(const dtrain_optimizer_t *optimizer, const dt_optimizer_part_t *part,
                      int number)
{
    if (number < optimizer->num_states)
        return part->state[number];
    return number == optimizer->num_states ? part->master : NULL;
}

/* An array of a part's state, in host memory: *copy is to be freed. */
static dtrain_status_t read_array(const dtrain_optimizer_t *optimizer, void *array, size_t bytes,
                                  void **copy)
{
    *copy = dt_alloc(bytes + 1);
    if (!*copy)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for what is to be saved");
    return bytes > 0 ? dt_optimizer_transfer(optimizer, *copy, array, bytes) : DTRAIN_OK;
}

/* All ranks' parts of a run's state go to the first rank. */
static dtrain_status_t collect(dtrain_optimizer_t *optimizer, int run,
                               const dt_optimizer_part_t *whole)
{
    const dt_optimizer_part_t *part = &optimizer->parts[run];
    const dt_talk_t *talk = &optimizer->set->talk;
    int64_t blocks = (part->end - part->begin) / DT_NORM_BLOCK;
    size_t bytes = (size_t)(part->end - part->begin) * dt_dtype_size(part->dtype);
    dtrain_status_t status = DTRAIN_OK;
    void *from;
    for (int i = 0; status == DTRAIN_OK && (from = array_of(optimizer, part, i)); i++) {
        void *copy = NULL;
        if (optimizer->set->device)
            status = dt_talk_agree(talk, read_array(optimizer, from, bytes, &copy));
        if (status == DTRAIN_OK)
            status = dt_talk_gather(talk, copy ? copy : from, blocks, DT_NORM_BLOCK, part->dtype,
                                    whole ? array_of(optimizer, whole, i) : NULL,
                                    optimizer->set->plan.runs[run].num_blocks);
        dt_free(copy);
    }
    return status;
}

/* Each rank takes its part of a run's state that rank `root` has. */
static dtrain_status_t deal(dtrain_optimizer_t *optimizer, int run,
                            const dt_optimizer_part_t *whole, int root)
{
    const dt_optimizer_part_t *part = &optimizer->parts[run];
    size_t size = dt_dtype_size(part->dtype);
    size_t bytes = (size_t)(whole->end - whole->begin) * size;
    size_t own = (size_t)(part->end - part->begin) * size;
    dtrain_status_t status = DTRAIN_OK;
    uint8_t *to;
    for (int i = 0; status == DTRAIN_OK && (to = array_of(optimizer, part, i)); i++) {
        uint8_t *from = array_of(optimizer, whole, i);
        status = dt_talk_broadcast(&optimizer->set->talk, from, bytes, root);
        if (status != DTRAIN_OK)
            return status;
        from += (size_t)(part->begin - whole->begin) * size;
        if (optimizer->set->device)
            status = dt_talk_agree(&optimizer->set->talk,
                                   dt_optimizer_transfer(optimizer, to, from, own));
        else
            memcpy(to, from, own);
    }
    return status;
}

static void free_wholes(dt_optimizer_part_t *wholes, int count)
{
    for (int i = 0; wholes && i < count; i++)
        dt_free(wholes[i].memory);
    dt_free(wholes);
}

/* The first rank writes all, of what the others have after it was sent. */
static dtrain_status_t save_gathered(dtrain_optimizer_t *optimizer, const char *path,
                                     const dt_state_save_t *save)
{
    dtrain_gradset_t *set = optimizer->set;
    int count = optimizer->num_parts, is_writer = set->talk.rank == 0, failed = 0;
    dt_optimizer_part_t *wholes = NULL;
    if (is_writer && optimizer->is_sharded) {
        wholes = dt_calloc((size_t)count + 1, sizeof *wholes);
        failed = !wholes;
        for (int run = 0; run < count && !failed; run++)
            failed = make_whole(optimizer, run, &wholes[run]);
    }
    dtrain_status_t status = dt_talk_agree(
        &set->talk, failed ? dt_fail(DTRAIN_ERR_OUT_OF_MEMORY,
                                     "out of memory for all ranks' state: save in shards")
                           : DTRAIN_OK);
    for (int run = 0; run < count && optimizer->is_sharded && status == DTRAIN_OK; run++)
        status = collect(optimizer, run, wholes ? &wholes[run] : NULL);
    if (status == DTRAIN_OK && is_writer) {
        dt_ranges_t list = {0};
        dt_extras_t extras = dt_extras_of(optimizer);
        for (int run = 0; run < count; run++) {
            const dt_optimizer_part_t *part = wholes ? &wholes[run] : &optimizer->parts[run];
            dt_ranges_add_run(&list, optimizer, part, part->begin, part->end, 1);
        }
        dt_ranges_add_extras(&list, &extras);
        dt_ranges_add_empty(&list, optimizer);
        status = write_list(optimizer, path, save, &list);
    }
    free_wholes(wholes, count);
    return dt_talk_agree(&set->talk, status);
}

/* Another number for each save, the same on all ranks. */
static dtrain_status_t agree_on_id(const dtrain_gradset_t *set, uint64_t *id)
{
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    const int64_t seeds[4] = {wall.tv_sec, wall.tv_nsec, dt_now_ns(), getpid()};
    *id = dt_hash(seeds, sizeof seeds);
    return dt_talk_broadcast(&set->talk, id, sizeof *id, set->talk.root);
}

dtrain_status_t dt_optimizer_save(dtrain_optimizer_t *optimizer, const char *path, int in_shards)
{
    dtrain_gradset_t *set = optimizer->set;
    dtrain_status_t status = dt_runtime_may_block(set->runtime, "dtrain_optimizer_save");
    if (status != DTRAIN_OK)
        return status;
    if (!path || !path[0])
        status = dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "dtrain_optimizer_save: no path");
    if (status == DTRAIN_OK)
        status = dt_gradset_check_idle(set, "dtrain_optimizer_save");
    if (status == DTRAIN_OK)
        status = dt_optimizer_quiesce(optimizer);
    status = dt_talk_agree(&set->talk, status);
    /* Before the first step there is no state, and yet it can be saved: from then on the plan that
     * it is cut by holds. */
    if (status == DTRAIN_OK)
        status = dt_gradset_adopt(set, set->order);
    if (status == DTRAIN_OK && !optimizer->parts)
        status = dt_optimizer_make_parts(optimizer);
    if (status != DTRAIN_OK)
        return status;
    dt_state_save_t save = {.step = optimizer->step,
                            .shard = in_shards ? set->talk.rank : 0,
                            .num_shards = in_shards ? set->talk.size : 1};
    status = agree_on_id(set, &save.id);
    if (status != DTRAIN_OK)
        return status;
    return save.num_shards > 1 ? save_in_shards(optimizer, path, &save)
                               : save_gathered(optimizer, path, &save);
}

/* ---- Load ----------------------------------------------------------------------------------- */

static dtrain_status_t check_numbers(const dtrain_optimizer_t *optimizer, const dt_extras_t *extras)
{
    const double *numbers = extras->numbers;
    if (numbers[DT_NUMBER_FORM] != DT_SAVE_FORM)
        return dt_fail(DTRAIN_ERR_FILE, "the save is of form %g, and this is a version for %d",
                       numbers[DT_NUMBER_FORM], DT_SAVE_FORM);
    if (numbers[DT_NUMBER_RULE] != optimizer->desc.rule ||
        numbers[DT_NUMBER_STATES] != optimizer->num_states)
        return dt_fail(DTRAIN_ERR_FILE,
                       "the save is of rule %g with %g arrays of state, and the optimizer of rule "
                       "%d with %d",
                       numbers[DT_NUMBER_RULE], numbers[DT_NUMBER_STATES], optimizer->desc.rule,
                       optimizer->num_states);
    return DTRAIN_OK;
}

/* Opens a save, and reads what is not by element. */
static dtrain_status_t open_save(const dtrain_optimizer_t *optimizer, const char *path,
                                 dt_state_t **state, dt_extras_t *extras)
{
    dt_ranges_t list = {0};
    dtrain_status_t status = dt_state_open(path, state);
    if (status != DTRAIN_OK)
        return status;
    dt_ranges_add_extras(&list, extras);
    status = list.failed ? dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a save")
                         : dt_state_read(*state, list.tensors, list.count);
    dt_ranges_free(&list);
    if (status == DTRAIN_OK)
        status = check_numbers(optimizer, extras);
    if (status == DTRAIN_OK && dt_grad_order_check(extras->order, optimizer->set->layout.n))
        status = dt_fail(DTRAIN_ERR_FILE, "the order of gradients in the save is none");
    return status;
}

static dtrain_status_t read_list(const dtrain_optimizer_t *optimizer, const dt_state_t *state,
                                 dt_ranges_t *list)
{
    dtrain_status_t status =
        list->failed ? dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for what is to be loaded")
                     : dt_state_read(state, list->tensors, list->count);
    if (status == DTRAIN_OK)
        status = dt_ranges_move(optimizer, list, 1);
    dt_ranges_free(list);
    return status;
}

/* Reads all parameters, and with `with_state` what state this rank has. */
static dtrain_status_t read_own(dtrain_optimizer_t *optimizer, const dt_state_t *state,
                                int with_state)
{
    const dt_grad_layout_t *layout = &optimizer->set->layout;
    dt_ranges_t list = {0};
    for (int i = 0; i < layout->n; i++) {
        const dt_grad_slice_t *slice = &layout->slices[i];
        const dt_grad_segment_t all = {.index = i, .count = slice->count};
        dt_ranges_add_segment(&list, "param/", slice, &all,
                              layout->regions[slice->region].param_dtype, optimizer->data[i],
                              optimizer->set->device != NULL);
    }
    for (int run = 0; run < optimizer->num_parts && with_state; run++) {
        const dt_optimizer_part_t *part = &optimizer->parts[run];
        dt_ranges_add_run(&list, optimizer, part, part->begin, part->end, 0);
    }
    return read_list(optimizer, state, &list);
}

/* Rank `root` reads a run's state, and every rank takes its part. */
static dtrain_status_t read_and_deal(dtrain_optimizer_t *optimizer, const dt_state_t *state,
                                     int run, int root)
{
    dt_optimizer_part_t whole;
    dtrain_status_t status = DTRAIN_OK;
    if (make_whole(optimizer, run, &whole))
        status = dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for what is to be loaded");
    if (status == DTRAIN_OK && state) {
        dt_ranges_t list = {0};
        dt_ranges_add_run(&list, optimizer, &whole, whole.begin, whole.end, 0);
        status = read_list(optimizer, state, &list);
    }
    status = dt_talk_agree(&optimizer->set->talk, status);
    if (status == DTRAIN_OK)
        status = deal(optimizer, run, &whole, root);
    dt_free(whole.memory);
    return status;
}

/* What one rank has read of a save is what all go on with. */
static dtrain_status_t share_extras(const dtrain_gradset_t *set, dt_extras_t *extras, int64_t *step,
                                    int root)
{
    size_t bytes = (size_t)set->layout.n * sizeof *extras->order;
    dtrain_status_t status =
        dt_talk_broadcast(&set->talk, extras->numbers, sizeof extras->numbers, root);
    if (status == DTRAIN_OK)
        status = dt_talk_broadcast(&set->talk, step, sizeof *step, root);
    if (status == DTRAIN_OK && bytes > 0)
        status = dt_talk_broadcast(&set->talk, extras->order, bytes, root);
    return status;
}

/* All ranks have read the same save. */
static dtrain_status_t compare_extras(const dtrain_gradset_t *set, const dt_extras_t *extras,
                                      int64_t step)
{
    int differs = 0;
    uint64_t parts[3] = {dt_hash(extras->numbers, sizeof extras->numbers), (uint64_t)step,
                         dt_hash(extras->order, (size_t)set->layout.n * sizeof *extras->order)};
    dtrain_status_t status = dt_talk_compare(&set->talk, dt_hash(parts, sizeof parts), &differs);
    if (status == DTRAIN_OK && differs)
        status = dt_fail(DTRAIN_ERR_MISMATCH,
                         "the ranks have read different saves: this one's is of step %lld",
                         (long long)step);
    return status;
}

static dtrain_status_t load_elements(dtrain_optimizer_t *optimizer, const dt_state_t *state,
                                     int root)
{
    const dt_talk_t *talk = &optimizer->set->talk;
    int deals = root >= 0 && optimizer->is_sharded;
    dtrain_status_t status = DTRAIN_OK;
    if (state)
        status = read_own(optimizer, state, !deals);
    status = dt_talk_agree(talk, status);
    if (status == DTRAIN_OK && root >= 0)
        status = dt_optimizer_broadcast(optimizer, root);
    for (int run = 0; run < optimizer->num_parts && deals && status == DTRAIN_OK; run++)
        status = read_and_deal(optimizer, state, run, root);
    return status;
}

/* With `order` in hand, and room in it for all parameters. */
static dtrain_status_t load(dtrain_optimizer_t *optimizer, const char *path, int root,
                            dt_extras_t *extras, dt_state_t **state)
{
    dtrain_gradset_t *set = optimizer->set;
    int reads = root < 0 || set->runtime->world.topology.rank == root;
    dtrain_status_t status = dt_gradset_check_idle(set, "dtrain_optimizer_load");
    if (status == DTRAIN_OK && (!path || !path[0]))
        status = dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "dtrain_optimizer_load: no path");
    if (status == DTRAIN_OK)
        status = dt_optimizer_quiesce(optimizer);
    if (status == DTRAIN_OK && reads)
        status = open_save(optimizer, path, state, extras);
    status = dt_talk_agree(&set->talk, status);
    if (status != DTRAIN_OK)
        return status;
    int64_t step = *state ? dt_state_step(*state) : 0;
    status = root >= 0 ? share_extras(set, extras, &step, root) : compare_extras(set, extras, step);
    if (status != DTRAIN_OK)
        return status;
    /* The order in which gradients became ready then holds now, too. */
    status = dt_gradset_adopt(set, extras->order);
    if (status == DTRAIN_OK && !optimizer->parts)
        status = dt_optimizer_make_parts(optimizer);
    if (status == DTRAIN_OK)
        status = load_elements(optimizer, *state, root);
    if (status != DTRAIN_OK)
        return status;
    optimizer->step = step;
    optimizer->seen = set->steps;
    if (optimizer->desc.loss_scale > 0)
        optimizer->loss_scale = extras->numbers[DT_NUMBER_SCALE];
    optimizer->num_good = (int64_t)extras->numbers[DT_NUMBER_GOOD];
    return DTRAIN_OK;
}

dtrain_status_t dt_optimizer_load(dtrain_optimizer_t *optimizer, const char *path, int root)
{
    dtrain_gradset_t *set = optimizer->set;
    dtrain_status_t status = dt_runtime_may_block(set->runtime, "dtrain_optimizer_load");
    if (status != DTRAIN_OK)
        return status;
    dt_extras_t extras = {.numbers_shape = DT_NUMBERS, .order_shape = set->layout.n};
    extras.order = dt_calloc((size_t)set->layout.n + 1, sizeof *extras.order);
    dt_state_t *state = NULL;
    status = extras.order ? DTRAIN_OK
                          : dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a save's order");
    status = dt_talk_agree(&set->talk, status);
    if (status == DTRAIN_OK)
        status = load(optimizer, path, root, &extras, &state);
    dt_state_close(state);
    dt_free(extras.order);
    return status;
}
