#include "core/verdict.h"

#include <stdio.h>

#include "base/fault.h"
#include "base/status.h"
#include "core/completion.h"
#include "core/pset_change.h"
#include "core/recording.h"
#include "core/stand_in.h"

/* Operations of a longer verdict are faster together. */
#define EAGER_ENTRIES_MAX 8

/* An operation failed, which this rank need not have submitted. */
static void apply_error(dt_runtime_t *runtime, const dt_entry_t *entry)
{
    if (dt_entry_excludes(entry, runtime->world.topology.rank))
        return;
    dt_operation_t *operation = dt_intake_find(&runtime->intake, entry->name, entry->name_length);
    if (!operation)
        return;
    char text[DT_ERROR_MAX];
    snprintf(text, sizeof text, "%.*s", (int)entry->text_length, entry->text);
    if (entry->step > 0)
        operation->result = (int32_t)entry->step;
    dt_complete(runtime, operation, (dtrain_status_t)entry->status, text);
}

static dtrain_status_t find_agreed(dt_runtime_t *runtime, const dt_entry_t *entry,
                                   dt_operation_t **found)
{
    dt_intake_t *intake = &runtime->intake;
    dt_operation_t *operation = entry->kind == DT_ENTRY_CACHED
                                    ? dt_id_table_get(&runtime->by_id, entry->id)
                                    : dt_intake_find(intake, entry->name, entry->name_length);
    if (!operation || operation->is_agreed || operation->is_refused)
        return dt_fail(DTRAIN_ERR_INTERNAL,
                       "rank 0 decided on an operation that is not in flight here");
    if (entry->kind == DT_ENTRY_NEW && entry->id != DT_ID_NONE) {
        dtrain_status_t status = dt_intake_learn(intake, operation, entry->id);
        if (status != DTRAIN_OK)
            return status;
    }
    *found = operation;
    return DTRAIN_OK;
}

/* An operation that was not submitted here. */
static void add_pending(dt_runtime_t *runtime, dt_operation_t *operation, dt_pset_t *set)
{
    int64_t timeout_ns = runtime->config.timeout_ns;
    operation->id = DT_ID_NONE;
    operation->set = set;
    operation->submitted_ns = runtime->clock.now(runtime->clock.context);
    operation->deadline_ns =
        timeout_ns == DT_NEVER ? DT_NEVER : operation->submitted_ns + timeout_ns;
    if (operation->deadline_ns < runtime->check_ns)
        runtime->check_ns = operation->deadline_ns;
    dt_pset_locate(set, operation);
    atomic_fetch_add(&set->num_pending, 1);
    atomic_fetch_add(&runtime->num_pending, 1);
    dt_operation_append(&runtime->pending, operation);
}

/* Two other ranks' transfer: this rank has its place in the order of collectives. */
static dtrain_status_t stand_by(dt_runtime_t *runtime, const dt_entry_t *entry, dt_pset_t *set,
                                dt_operation_t **found)
{
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)entry->name_length, entry->name);
    if (dt_signature_check(&entry->signature, name, runtime->world.topology.size) != DTRAIN_OK)
        return dt_fail(DTRAIN_ERR_INTERNAL, "rank 0 agreed on a transfer that cannot be");
    dt_operation_t *operation = dt_handle_acquire(runtime->handles);
    if (!operation)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a transfer of other ranks");
    operation->is_bystander = 1;
    operation->signature = entry->signature;
    operation->in = operation->out = NULL;
    operation->count = operation->bytes = 0;
    add_pending(runtime, operation, set);
    operation->deadline_ns = DT_NEVER;
    *found = operation;
    return DTRAIN_OK;
}

static int is_bystander(const dt_entry_t *entry, int rank)
{
    const dt_signature_t *signature = &entry->signature;
    return entry->kind == DT_ENTRY_NEW && signature->kind == DT_KIND_TRANSFER &&
           signature->root != rank && signature->peer != rank;
}

/* An operation of the others', to which this rank, which has joined, has nothing to give. */
static dtrain_status_t stand_in(dt_runtime_t *runtime, const dt_entry_t *entry, dt_pset_t *set,
                                dt_operation_t **found)
{
    dt_operation_t *operation = dt_handle_acquire(runtime->handles);
    if (!operation)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory or handles for a rank that has "
                                                 "joined");
    dtrain_status_t status =
        dt_stand_in_make(operation, &entry->signature, set, entry->name, entry->name_length);
    if (status != DTRAIN_OK) {
        dt_stand_in_free(operation);
        dt_handle_release(runtime->handles, operation, atomic_load(&operation->handle));
        return status;
    }
    add_pending(runtime, operation, set);
    *found = operation;
    return DTRAIN_OK;
}

/* Finds the operation that was agreed on, or makes one where this rank only keeps its place. */
static dtrain_status_t find_or_make(dt_runtime_t *runtime, const dt_entry_t *entry,
                                    dt_operation_t **found)
{
    int rank = runtime->world.topology.rank;
    int stands_in = dt_entry_excludes(entry, rank);
    if (!stands_in && !is_bystander(entry, rank))
        return find_agreed(runtime, entry, found);
    dt_pset_t *set = dt_psets_find(&runtime->psets, entry->signature.pset);
    if (dt_kind_traits(entry->signature.kind)->is_control) {
        dt_recording_agreed(runtime, set, NULL);
        return DTRAIN_OK;
    }
    if (!set || set->rank < 0)
        return dt_fail(DTRAIN_ERR_INTERNAL,
                       "rank 0 decided on process set %d, which has no rank %d",
                       entry->signature.pset, rank);
    return stands_in ? stand_in(runtime, entry, set, found) : stand_by(runtime, entry, set, found);
}

/* Why there can be no further set, on any rank; 0 when there can. */
static int describe_full(const dt_psets_t *psets, char *text, size_t cap)
{
    if (psets->count > DT_SUBSETS_MAX)
        return snprintf(text, cap, "there are %d process sets, and no more can be at a time",
                        DT_SUBSETS_MAX);
    if (psets->next_id > DT_PSET_ID_MAX)
        return snprintf(text, cap, "there have been %d process sets, and no more can be",
                        DT_PSET_ID_MAX);
    return 0;
}

/* What has no data is complete once it is agreed. */
static dtrain_status_t complete_agreed(dt_runtime_t *runtime, const dt_entry_t *entry,
                                       dt_operation_t *operation)
{
    dtrain_status_t status = DTRAIN_OK;
    int is_done = 1;
    char text[128];
    if (operation->signature.kind == DT_KIND_JOIN) {
        operation->result = entry->signature.root;
        atomic_fetch_add(&operation->set->num_joins, 1);
    } else if (operation->signature.kind == DT_KIND_PSET_ADD &&
               describe_full(&runtime->psets, text, sizeof text)) {
        dt_complete(runtime, operation, DTRAIN_ERR_UNSUPPORTED, text);
        return DTRAIN_OK;
    } else if (operation->change) {
        status = dt_pset_change_apply(runtime, operation, &is_done);
    }
    if (status == DTRAIN_OK && is_done)
        dt_complete(runtime, operation, DTRAIN_OK, NULL);
    return status;
}

static dtrain_status_t apply_agreed(dt_runtime_t *runtime, const dt_entry_t *entry, int is_short,
                                    dt_pset_t **touched)
{
    dt_operation_t *operation = NULL;
    dtrain_status_t status = find_or_make(runtime, entry, &operation);
    if (status != DTRAIN_OK || !operation)
        return status;
    dt_recording_agreed(runtime, operation->set, operation);
    if (dt_kind_traits(operation->signature.kind)->is_control)
        return complete_agreed(runtime, entry, operation);
    operation->is_agreed = 1;
    /* All ranks whose signature an id stands for have it in the same kind of memory. */
    operation->memory = (dt_memory_t)(entry->kind == DT_ENTRY_NEW ? entry->signature.memory
                                                                  : operation->signature.memory);
    operation->divisor = operation->set->size;
    if (runtime->config.join_divisor == DTRAIN_JOIN_DIVISOR_PRESENT)
        operation->divisor -= (int)entry->num_absent;
    dt_pset_t *set = operation->set;
    if (is_short && entry->kind == DT_ENTRY_CACHED && set->id == DTRAIN_PSET_WORLD) {
        int is_done;
        status = dt_executor_take(&set->executor, operation, &is_done);
        if (status != DTRAIN_OK || is_done)
            return status;
    }
    return dt_pset_agree(set, operation, touched);
}

dtrain_status_t dt_verdict_apply(dt_runtime_t *runtime, dt_reader_t *reader, int is_part)
{
    dt_fault_point(DT_FAULT_VERDICT);
    uint32_t entries = dt_get_u32(reader);
    /* Where the ranks have parts of different lengths, none may go by the length of its own. */
    int is_short = !is_part && entries <= EAGER_ENTRIES_MAX;
    dt_pset_t *touched = NULL;
    for (uint32_t i = 0; i < entries; i++) {
        dt_entry_t entry;
        if (dt_get_entry(reader, &entry))
            return dt_fail(DTRAIN_ERR_INTERNAL, "a malformed verdict came from rank 0");
        dtrain_status_t status = DTRAIN_OK;
        if (entry.kind == DT_ENTRY_ERROR)
            apply_error(runtime, &entry);
        else
            status = apply_agreed(runtime, &entry, is_short, &touched);
        if (status != DTRAIN_OK)
            return status;
    }
    return dt_psets_start(&runtime->psets, touched);
}
