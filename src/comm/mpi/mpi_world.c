#include "comm/mpi/mpi_world.h"

#include <mpi.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/sigpipe.h"
#include "base/status.h"
#include "base/text.h"
#include "comm/mpi/mpi_aside.h"
#include "comm/mpi/mpi_bootstrap.h"
#include "comm/mpi/mpi_call.h"
#include "comm/mpi/mpi_escape.h"
#include "comm/mpi/mpi_library.h"

/* How long ranks that leave wait for each other: where one that dies meanwhile is seen, on this
 * node alone, for as long as a busy machine may take, else for as long as one may wait for the
 * dead. */
#define MEET_SEEN_NS (20 * DT_NS_PER_S)
#define MEET_UNSEEN_NS (5 * DT_NS_PER_S)
/* By how much a step may pass its time limit before MPI counts as stuck in it. */
#define STUCK_NS (2 * DT_NS_PER_S)

/* For a rank without memory to say so to the others. Taken for good when MPI may still write there.
 */
static dt_mpi_bootstrap_t last_reserve;
static atomic_flag is_reserve_taken = ATOMIC_FLAG_INIT;

/* NULL: there is not even the reserve. */
static dt_mpi_bootstrap_t *make_bootstrap(void)
{
    dt_mpi_bootstrap_t *bootstrap = dt_calloc(1, sizeof *bootstrap);
    if (bootstrap || atomic_flag_test_and_set(&is_reserve_taken))
        return bootstrap;
    last_reserve = (dt_mpi_bootstrap_t){.is_starved = 1};
    return &last_reserve;
}

static void free_bootstrap(dt_mpi_bootstrap_t *bootstrap)
{
    if (bootstrap == &last_reserve)
        atomic_flag_clear(&is_reserve_taken);
    else
        dt_free(bootstrap);
}

static dtrain_status_t check_comm(MPI_Comm comm)
{
    int is_inter = 0;
    if (comm == MPI_COMM_NULL || comm == (MPI_Comm)0)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "the communicator is MPI_COMM_NULL");
    dtrain_status_t status =
        dt_mpi_check(MPI_Comm_test_inter(comm, &is_inter), "MPI_Comm_test_inter");
    if (status == DTRAIN_OK && is_inter)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "the communicator is an intercommunicator");
    return status;
}

static int64_t meeting_time(const dt_mpi_bootstrap_t *bootstrap)
{
    return bootstrap->num_watched == bootstrap->size - 1 ? MEET_SEEN_NS : MEET_UNSEEN_NS;
}

/* Whether all are still there that were when all had joined. A rank that cannot look takes part,
 * since the others wait for it. */
static int are_all_here(const dt_mpi_bootstrap_t *bootstrap, const dt_mpi_watch_t *watch)
{
    return watch->is_blind || watch->count >= bootstrap->num_watched;
}

/* MPI may still hold what this rank has sent, so all ranks go on calling it until all are through.
 * 1 when they are. 0 when one has died on its way out: then nothing that waits for all may follow.
 */
static int meet(dt_mpi_bootstrap_t *bootstrap)
{
    MPI_Request request;
    dt_mpi_watch_t watch;
    dt_mpi_watch_open(&watch, bootstrap->comm);
    int64_t deadline_ns = dt_now_ns() + (watch.is_blind ? MEET_UNSEEN_NS : meeting_time(bootstrap));
    int have_met = are_all_here(bootstrap, &watch) &&
                   MPI_Ibarrier(bootstrap->comm, &request) == MPI_SUCCESS &&
                   dt_mpi_watch_finish(&watch, &request, deadline_ns, "MPI_Ibarrier") == DTRAIN_OK;
    dt_mpi_watch_close(&watch);
    if (!have_met)
        dt_log(DTRAIN_LOG_WARN, "mpi",
               "a rank died, or is stuck, on its way out of the world: MPI will not be finalized");
    return have_met;
}

static void part(void *argument)
{
    dt_mpi_bootstrap_t *bootstrap = argument;
    if (!meet(bootstrap))
        return;
    MPI_Comm_free(&bootstrap->comm);
    bootstrap->has_parted = 1;
}

/* The context is the bootstrap, for its communicator. */
static void leave(void *context, int clean)
{
    dt_mpi_bootstrap_t *bootstrap = context;
    int is_active = dt_mpi_is_active(), is_stuck = 0;
    if (!is_active)
        dt_log(DTRAIN_LOG_WARN, "mpi", "MPI was finalized before dtrain_shutdown");
    /* Where a rank may be dead nothing is called that waits for all. */
    if (clean && is_active) {
        is_stuck = dt_mpi_aside(part, bootstrap, meeting_time(bootstrap) + STUCK_NS);
        clean = !is_stuck && bootstrap->has_parted;
    }
    dt_mpi_library_leave(clean);
    if (!bootstrap->is_pending && !is_stuck)
        free_bootstrap(bootstrap);
}

static void give_up(void *context)
{
    (void)context;
    dt_mpi_give_up();
}

/* Gives back a world that did not come to be. */
static dtrain_status_t abandon(dt_mpi_bootstrap_t *bootstrap, dt_world_t world)
{
    char error[DT_ERROR_MAX];
    dtrain_status_t status = bootstrap->status;
    dt_text_format(error, sizeof error, "%s", bootstrap->error);
    dt_world_close(&world, bootstrap->is_agreed);
    return dt_fail(status, "%s", error);
}

static void set_up(void *argument)
{
    dt_mpi_bootstrap_t *bootstrap = argument;
    if (bootstrap->status != DTRAIN_OK)
        dt_fail(bootstrap->status, "%s", bootstrap->error);
    bootstrap->status = dt_mpi_bootstrap_run(bootstrap, bootstrap->status);
    dt_text_format(bootstrap->error, sizeof bootstrap->error, "%s", dt_last_error());
    dt_mpi_bootstrap_finish(bootstrap);
}

/* What it may take: the steps once all ranks are here have some time of their own. */
static int64_t time_limit(const dt_mpi_bootstrap_t *bootstrap)
{
    int64_t span = bootstrap->config.init_timeout_ns;
    int64_t later = span < DT_MPI_CONNECT_NS ? span : DT_MPI_CONNECT_NS;
    return bootstrap->deadline_ns == DT_NEVER ? DT_NEVER : span + 2 * later + STUCK_NS;
}

/* 1: MPI is stuck in it. A rank whose thread level is too low takes part too, to say so: with it
 * only this thread may call MPI. */
static int set_up_in_time(dt_mpi_bootstrap_t *bootstrap, int may_be_aside)
{
    dt_sigpipe_t held;
    if (may_be_aside)
        return dt_mpi_aside(set_up, bootstrap, time_limit(bootstrap));
    dt_sigpipe_hold(&held);
    set_up(bootstrap);
    dt_sigpipe_release(&held);
    return 0;
}

static dtrain_status_t run(dt_mpi_bootstrap_t *bootstrap, dt_config_t *config, int may_be_aside,
                           dt_world_t *world)
{
    int64_t now = dt_now_ns();
    int64_t span = config->init_timeout_ns;
    bootstrap->deadline_ns = span < DT_NEVER - now ? now + span : DT_NEVER;
    bootstrap->config = *config;
    if (bootstrap->status != DTRAIN_OK)
        dt_text_format(bootstrap->error, sizeof bootstrap->error, "%s", dt_last_error());
    if (set_up_in_time(bootstrap, may_be_aside))
        return dt_fail(DTRAIN_ERR_TIMEOUT,
                       "MPI has not come back for %.1f s while the world was being set up: a rank "
                       "died, or the network is stuck",
                       (double)(dt_now_ns() - now) / 1e9);
    *config = bootstrap->config;
    dt_world_t made = bootstrap->world;
    made.leave = leave;
    made.give_up = give_up;
    made.context = bootstrap;
    if (bootstrap->status != DTRAIN_OK)
        return abandon(bootstrap, made);
    *world = made;
    return DTRAIN_OK;
}

static dtrain_status_t join_comm(MPI_Comm comm, int has_comm, dt_config_t *config,
                                 dt_world_t *world)
{
    int may_call = 0;
    dt_fault_point(DT_FAULT_INIT_MPI);
    dtrain_status_t status = dt_mpi_library_enter(config->mpi_threads, has_comm, &may_call);
    if (status != DTRAIN_OK && !may_call)
        return status;
    dtrain_status_t fault = check_comm(comm);
    dt_mpi_bootstrap_t *bootstrap = make_bootstrap();
    if (fault == DTRAIN_OK && !bootstrap)
        fault = dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for a world");
    if (fault != DTRAIN_OK || !bootstrap) {
        if (bootstrap)
            free_bootstrap(bootstrap);
        dt_mpi_library_leave(1);
        return fault;
    }
    bootstrap->comm = MPI_COMM_NULL;
    bootstrap->parent = comm;
    bootstrap->status = status == DTRAIN_OK ? config->fault : status;
    return run(bootstrap, config, status == DTRAIN_OK, world);
}

dtrain_status_t dt_mpi_join(const void *comm, dt_config_t *config, dt_world_t *world)
{
    MPI_Comm joined = MPI_COMM_WORLD;
    if (comm)
        memcpy(&joined, comm, sizeof joined);
    return join_comm(joined, comm != NULL, config, world);
}

dtrain_status_t dt_mpi_join_fint(int fcomm, dt_config_t *config, dt_world_t *world)
{
    /* Handles cannot be converted before MPI is up, or after; joining any tells why not. */
    MPI_Comm comm = dt_mpi_is_active() ? MPI_Comm_f2c((MPI_Fint)fcomm) : MPI_COMM_NULL;
    return join_comm(comm, 1, config, world);
}
