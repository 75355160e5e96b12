#include "core/pset.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

static dtrain_status_t no_memory(void)
{
    return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a process set");
}

/* ---- One set ------------------------------------------------------------------------------- */

/* Of a set whose backend is gone, and the world's as well where tasks were given up. */
static void set_free(dt_pset_t *set)
{
    if (!set)
        return;
    if (set->rank >= 0)
        dt_executor_free(&set->executor);
    dt_rank_set_free(&set->members);
    dt_rank_set_free(&set->joined);
    dt_free(set->ranks);
    dt_free(set->agreed);
    dt_free(set);
}

int dt_pset_place(const dt_pset_t *set, int rank)
{
    if (rank >= 0 && rank < set->size && set->ranks[rank] == rank)
        return rank;
    for (int i = 0; i < set->size; i++) {
        if (set->ranks[i] == rank)
            return i;
    }
    return -1;
}

void dt_pset_locate(const dt_pset_t *set, dt_operation_t *operation)
{
    const dt_signature_t *signature = &operation->signature;
    if (dt_kind_traits(signature->kind)->has_root)
        operation->root = dt_pset_place(set, signature->root);
    if (signature->kind == DT_KIND_TRANSFER)
        operation->peer = dt_pset_place(set, signature->peer);
}

/* Without a backend. `ranks` NULL: all. */
static dt_pset_t *set_create(const dt_topology_t *topology, const int *ranks, int n)
{
    dt_pset_t *set = dt_calloc(1, sizeof *set);
    if (!set)
        return NULL;
    set->size = n;
    set->rank = -1;
    set->ranks = dt_alloc((size_t)n * sizeof *set->ranks);
    if (!set->ranks || dt_rank_set_init(&set->members, topology->size) ||
        dt_rank_set_init(&set->joined, topology->size)) {
        set_free(set);
        return NULL;
    }
    for (int i = 0; i < n; i++) {
        set->ranks[i] = ranks ? ranks[i] : i;
        dt_rank_set_add(&set->members, set->ranks[i]);
    }
    return set;
}

/* Makes this rank a member, with an executor. */
static void set_enrol(dt_psets_t *psets, dt_pset_t *set, dt_backend_t *backend)
{
    set->rank = dt_pset_place(set, psets->world->topology.rank);
    set->backend = backend;
    dt_ranks_t ranks = {.rank = set->rank, .size = set->size};
    dt_executor_init(&set->executor, backend, ranks, &psets->policy, psets->started, psets->done,
                     psets->failed, psets->context);
    set->executor.members = set->ranks;
    set->executor.gpu = psets->gpu;
    set->executor.enqueued = psets->enqueued;
}

/* A set of one process's world has the world's backend: its collectives are over once started. */
static int owns_backend(const dt_psets_t *psets, const dt_pset_t *set)
{
    return set->backend && set->backend != psets->world->backend;
}

static void set_leave(const dt_psets_t *psets, dt_pset_t *set, int clean)
{
    if (set->rank >= 0)
        dt_executor_leave(&set->executor, clean);
    if (owns_backend(psets, set))
        set->backend->ops->destroy(set->backend, clean);
    set->backend = NULL;
}

/* ---- The table ----------------------------------------------------------------------------- */

static void insert(dt_psets_t *psets, dt_pset_t *set)
{
    set->id = psets->next_id++;
    pthread_mutex_lock(&psets->lock);
    psets->sets[psets->count++] = set;
    pthread_mutex_unlock(&psets->lock);
}

dtrain_status_t dt_psets_init(dt_psets_t *psets, dt_world_t *world, const dt_plan_policy_t *policy,
                              dt_started_fn_t started, dt_done_fn_t done, dt_failed_fn_t failed,
                              void *context)
{
    memset(psets, 0, sizeof *psets);
    psets->world = world;
    psets->policy = *policy;
    psets->started = started;
    psets->done = done;
    psets->failed = failed;
    psets->context = context;
    pthread_mutex_init(&psets->lock, NULL);
    psets->sets = dt_calloc(DT_SUBSETS_MAX + 1, sizeof *psets->sets);
    dt_pset_t *all = set_create(&world->topology, NULL, world->topology.size);
    if (!psets->sets || !all) {
        set_free(all);
        return no_memory();
    }
    set_enrol(psets, all, world->backend);
    insert(psets, all);
    return DTRAIN_OK;
}

void dt_psets_use_gpu(dt_psets_t *psets, dt_gpu_t *gpu, dt_started_fn_t enqueued)
{
    psets->gpu = gpu;
    psets->enqueued = enqueued;
    psets->sets[0]->executor.gpu = gpu;
    psets->sets[0]->executor.enqueued = enqueued;
}

void dt_psets_abandon(dt_psets_t *psets)
{
    for (int i = 0; i < psets->count; i++) {
        if (psets->sets[i]->rank >= 0)
            dt_executor_abandon(&psets->sets[i]->executor);
    }
}

void dt_psets_leave(dt_psets_t *psets, int clean)
{
    for (int i = 0; i < psets->count; i++)
        set_leave(psets, psets->sets[i], clean);
}

void dt_psets_free(dt_psets_t *psets)
{
    for (int i = 0; i < psets->count; i++)
        set_free(psets->sets[i]);
    dt_free(psets->sets);
    pthread_mutex_destroy(&psets->lock);
}

/* The index of a set, or of the one that would come after it. */
static int find_index(const dt_psets_t *psets, int32_t id)
{
    int low = 0, high = psets->count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (psets->sets[middle]->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

dt_pset_t *dt_psets_find(const dt_psets_t *psets, int32_t id)
{
    if (id == DTRAIN_PSET_WORLD)
        return psets->sets[0];
    int at = find_index(psets, id);
    return at < psets->count && psets->sets[at]->id == id ? psets->sets[at] : NULL;
}

dtrain_status_t dt_psets_check(const dt_psets_t *psets, const int *ranks, int n)
{
    int size = psets->world->topology.size;
    if (!ranks || n < 1)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "a process set of %d ranks%s", n,
                       ranks ? "" : ", which are NULL");
    dt_rank_set_t seen;
    if (dt_rank_set_init(&seen, size))
        return no_memory();
    dtrain_status_t status = DTRAIN_OK;
    for (int i = 0; i < n && status == DTRAIN_OK; i++) {
        if (ranks[i] < 0 || ranks[i] >= size)
            status =
                dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                        "a process set with rank %d, which is not a rank of %d", ranks[i], size);
        else if (!dt_rank_set_add(&seen, ranks[i]))
            status =
                dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "a process set with rank %d twice", ranks[i]);
    }
    dt_rank_set_free(&seen);
    return status;
}

static dtrain_status_t make_backend(dt_psets_t *psets, dt_pset_t *set)
{
    dt_backend_t *backend = psets->world->backend;
    if (!dt_rank_set_has(&set->members, psets->world->topology.rank))
        return DTRAIN_OK;
    if (psets->world->topology.size > 1) {
        if (!backend->ops->subset)
            return dt_fail(DTRAIN_ERR_UNSUPPORTED, "the %s backend has no process sets",
                           backend->ops->name);
        dtrain_status_t status =
            backend->ops->subset(backend, set->ranks, set->size, set->number, &backend);
        if (status != DTRAIN_OK)
            return status;
    }
    set_enrol(psets, set, backend);
    return DTRAIN_OK;
}

dtrain_status_t dt_psets_add(dt_psets_t *psets, const int *ranks, int n, int32_t *id)
{
    dtrain_status_t status = dt_psets_check(psets, ranks, n);
    if (status != DTRAIN_OK)
        return status;
    int place = 0;
    while (place < DT_SUBSETS_MAX && psets->is_used[place])
        place++;
    if (place == DT_SUBSETS_MAX)
        return dt_fail(DTRAIN_ERR_UNSUPPORTED,
                       "there are %d process sets, and no more can be at a time", DT_SUBSETS_MAX);
    dt_pset_t *set = set_create(&psets->world->topology, ranks, n);
    if (!set)
        return no_memory();
    /* Unique modulo DT_SUBSETS_MAX, and higher than all that were before. */
    set->number = place + DT_SUBSETS_MAX * psets->next_id;
    status = make_backend(psets, set);
    if (status != DTRAIN_OK) {
        set_free(set);
        return status;
    }
    psets->is_used[place] = 1;
    insert(psets, set);
    *id = set->id;
    return DTRAIN_OK;
}

void dt_psets_remove(dt_psets_t *psets, dt_pset_t *set)
{
    int at = find_index(psets, set->id);
    pthread_mutex_lock(&psets->lock);
    psets->count--;
    memmove(&psets->sets[at], &psets->sets[at + 1],
            (size_t)(psets->count - at) * sizeof *psets->sets);
    pthread_mutex_unlock(&psets->lock);
    psets->is_used[set->number % DT_SUBSETS_MAX] = 0;
    set_leave(psets, set, 1);
    set_free(set);
}

/* ---- Operations ------------------------------------------------------------------------------ */

dtrain_status_t dt_pset_agree(dt_pset_t *set, dt_operation_t *operation, dt_pset_t **touched)
{
    if (set->num_agreed == set->agreed_capacity) {
        int capacity = set->agreed_capacity ? 2 * set->agreed_capacity : 64;
        dt_operation_t **agreed = dt_realloc(set->agreed, (size_t)capacity * sizeof *agreed);
        if (!agreed)
            return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a verdict");
        set->agreed = agreed;
        set->agreed_capacity = capacity;
    }
    if (set->num_agreed == 0) {
        set->next_touched = *touched;
        *touched = set;
    }
    set->agreed[set->num_agreed++] = operation;
    return DTRAIN_OK;
}

static void activate(dt_psets_t *psets, dt_pset_t *set)
{
    if (set->is_active)
        return;
    set->is_active = 1;
    set->next_active = psets->active;
    psets->active = set;
}

dtrain_status_t dt_psets_start(dt_psets_t *psets, dt_pset_t *touched)
{
    dtrain_status_t status = DTRAIN_OK;
    for (dt_pset_t *set = touched; set && status == DTRAIN_OK; set = set->next_touched) {
        status = dt_executor_add(&set->executor, set->agreed, set->num_agreed);
        set->num_agreed = 0;
        activate(psets, set);
    }
    return status;
}

dtrain_status_t dt_psets_split(dt_psets_t *psets, int32_t id, dt_operation_t *operation,
                               int *is_taken)
{
    dt_pset_t *world = psets->sets[0], *set = dt_psets_find(psets, id);
    dt_ranks_t ranks = {.rank = set->rank, .size = set->size};
    dtrain_status_t status = dt_executor_split(
        &world->executor, operation, set->rank >= 0 ? &set->executor : NULL, ranks, is_taken);
    operation->is_agreed = *is_taken;
    if (*is_taken)
        activate(psets, world);
    return status;
}

dtrain_status_t dt_psets_progress(dt_psets_t *psets, int *moved)
{
    dtrain_status_t status = DTRAIN_OK;
    dt_pset_t **at = &psets->active;
    while (*at && status == DTRAIN_OK) {
        dt_pset_t *set = *at;
        status = dt_executor_progress(&set->executor, moved);
        if (dt_executor_is_idle(&set->executor)) {
            set->is_active = 0;
            *at = set->next_active;
        } else {
            at = &set->next_active;
        }
    }
    return status;
}

int dt_psets_is_idle(const dt_psets_t *psets)
{
    return !psets->active;
}

int dt_psets_has_backlog(const dt_psets_t *psets)
{
    for (const dt_pset_t *set = psets->active; set; set = set->next_active) {
        if (dt_executor_has_backlog(&set->executor))
            return 1;
    }
    return 0;
}

/* ---- Calls ------------------------------------------------------------------------------------
 */

static dtrain_status_t fail_unknown(int32_t id)
{
    return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "there is no process set %d", id);
}

dtrain_status_t dt_pset_enter(dt_psets_t *psets, int32_t id, dt_pset_t **set)
{
    if (id == DTRAIN_PSET_WORLD) {
        *set = psets->sets[0];
        atomic_fetch_add(&(*set)->num_pending, 1);
        return DTRAIN_OK;
    }
    pthread_mutex_lock(&psets->lock);
    dt_pset_t *found = dt_psets_find(psets, id);
    int is_closing = found && found->is_closing;
    if (found && !is_closing)
        atomic_fetch_add(&found->num_pending, 1);
    pthread_mutex_unlock(&psets->lock);
    if (!found)
        return fail_unknown(id);
    if (is_closing)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "process set %d is being removed", id);
    *set = found;
    return DTRAIN_OK;
}

void dt_pset_leave(dt_pset_t *set)
{
    atomic_fetch_sub(&set->num_pending, 1);
}

dtrain_status_t dt_pset_close(dt_psets_t *psets, int32_t id)
{
    if (id == DTRAIN_PSET_WORLD)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "process set 0 is the world, which stays");
    pthread_mutex_lock(&psets->lock);
    dt_pset_t *set = dt_psets_find(psets, id);
    int num_pending = set ? atomic_load(&set->num_pending) : 0;
    int was_closing = set && set->is_closing;
    if (set && num_pending == 0)
        set->is_closing = 1;
    pthread_mutex_unlock(&psets->lock);
    if (!set)
        return fail_unknown(id);
    if (was_closing)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "process set %d is being removed already", id);
    if (num_pending > 0)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "process set %d has %d operation(s) pending, and cannot be removed", id,
                       num_pending);
    return DTRAIN_OK;
}

void dt_pset_reopen(dt_psets_t *psets, int32_t id)
{
    pthread_mutex_lock(&psets->lock);
    dt_pset_t *set = dt_psets_find(psets, id);
    if (set)
        set->is_closing = 0;
    pthread_mutex_unlock(&psets->lock);
}

uint32_t dt_psets_num_joins(dt_psets_t *psets, int32_t id)
{
    pthread_mutex_lock(&psets->lock);
    dt_pset_t *set = dt_psets_find(psets, id);
    uint32_t num_joins = set ? atomic_load(&set->num_joins) : 0;
    pthread_mutex_unlock(&psets->lock);
    return num_joins;
}

dtrain_status_t dt_pset_describe(dt_psets_t *psets, int32_t id, int *rank, int *size, int *ranks,
                                 int cap)
{
    pthread_mutex_lock(&psets->lock);
    const dt_pset_t *set = dt_psets_find(psets, id);
    if (set) {
        *rank = set->rank;
        *size = set->size;
        int n = set->size < cap ? set->size : cap;
        if (n > 0)
            memcpy(ranks, set->ranks, (size_t)n * sizeof *ranks);
    }
    pthread_mutex_unlock(&psets->lock);
    return set ? DTRAIN_OK : fail_unknown(id);
}
