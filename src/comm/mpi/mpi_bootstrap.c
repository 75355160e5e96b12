#include "comm/mpi/mpi_bootstrap.h"

#include <time.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/text.h"
#include "comm/mpi/mpi_call.h"
#include "comm/mpi/mpi_detect.h"
#include "comm/mpi/mpi_escape.h"
#include "comm/mpi/mpi_node.h"
#include "comm/mpi/mpi_p2p.h"
#include "comm/ring/ring.h"
#include "comm/self/self_world.h"

/* Rank 0 gives up so much before the others, which then hear why. */
#define VERDICT_NS DT_NS_PER_S
/* No other messages are sent on the communicator before the world is complete. */
#define FAILURE_TAG 0
#define SETTLE_NS (50 * DT_NS_PER_MS)

static int64_t after(int64_t now, int64_t span)
{
    return span < DT_NEVER - now ? now + span : DT_NEVER;
}

dtrain_status_t dt_mpi_bootstrap_await(dt_mpi_bootstrap_t *self, MPI_Request *request,
                                       const char *what)
{
    dtrain_status_t status =
        self->world.detector ? dt_mpi_detect_finish(self, request, what)
                             : dt_mpi_watch_finish(&self->watch, request, self->deadline_ns, what);
    self->is_pending = status != DTRAIN_OK;
    if (status == DTRAIN_ERR_TIMEOUT)
        return dt_fail(status,
                       "rank %d of %d waited %.1f s for all ranks to join (%s): a rank did not "
                       "call dtrain_init, or died",
                       self->rank, self->size, (double)self->config.init_timeout_ns / 1e9, what);
    return status;
}

dtrain_status_t dt_mpi_bootstrap_agree(dt_mpi_bootstrap_t *self, dtrain_status_t status,
                                       dtrain_status_t *worst)
{
    MPI_Request request;
    self->words[0] = status;
    dtrain_status_t step = dt_mpi_check(MPI_Iallreduce(&self->words[0], &self->words[1], 1,
                                                       MPI_INT32_T, MPI_MIN, self->comm, &request),
                                        "MPI_Iallreduce");
    if (step == DTRAIN_OK)
        step = dt_mpi_bootstrap_await(self, &request, "MPI_Iallreduce");
    *worst = (dtrain_status_t)self->words[1];
    return step;
}

/* ---- 1. The communicator ------------------------------------------------------------- */

static dtrain_status_t duplicate(dt_mpi_bootstrap_t *self, MPI_Comm comm)
{
    MPI_Request request;
    dtrain_status_t status = dt_mpi_check(MPI_Comm_rank(comm, &self->rank), "MPI_Comm_rank");
    if (status == DTRAIN_OK)
        status = dt_mpi_check(MPI_Comm_size(comm, &self->size), "MPI_Comm_size");
    if (status == DTRAIN_OK && self->size > 1)
        dt_mpi_watch_open(&self->watch, comm);
    if (status == DTRAIN_OK)
        status = dt_mpi_check(MPI_Comm_idup(comm, &self->comm, &request), "MPI_Comm_idup");
    if (status == DTRAIN_OK)
        status = dt_mpi_bootstrap_await(self, &request, "MPI_Comm_idup");
    if (status == DTRAIN_OK)
        status = dt_mpi_check(MPI_Comm_set_errhandler(self->comm, MPI_ERRORS_RETURN),
                              "MPI_Comm_set_errhandler");
    return status;
}

/* ---- 2. What each rank needs, and whether all have it ------------------------------------ */

static dtrain_status_t make_backend(dt_mpi_bootstrap_t *self)
{
    if (self->size == 1)
        return dt_self_join(&self->world);
    dtrain_status_t status = dt_mpi_p2p_create(self->comm, &self->p2p);
    if (status == DTRAIN_OK)
        status = dt_ring_create(self->p2p, NULL, &self->world.backend);
    return status;
}

static dtrain_status_t greet(dt_mpi_bootstrap_t *self, dtrain_status_t status)
{
    MPI_Request request;
    dt_mpi_hello_t *own = &self->hellos[self->size];
    if (status == DTRAIN_OK)
        status = make_backend(self);
    dt_mpi_hello_write(own, &self->config, status);
    dt_fault_point(DT_FAULT_INIT_HELLO);
    status = dt_mpi_check(MPI_Iallgather(own, DT_MPI_HELLO_BYTES, MPI_BYTE, self->hellos,
                                         DT_MPI_HELLO_BYTES, MPI_BYTE, self->comm, &request),
                          "MPI_Iallgather");
    if (status == DTRAIN_OK)
        status = dt_mpi_bootstrap_await(self, &request, "MPI_Iallgather");
    if (status != DTRAIN_OK)
        return status;
    self->is_agreed = 1;
    status = dt_mpi_hello_check(self->hellos, self->rank, self->size);
    if (status == DTRAIN_OK)
        dt_config_adopt_shared(&self->config, &self->hellos[0].is.config);
    return status;
}

/* ---- 3. The control connections ------------------------------------------------------------ */

/* Word of a rank that failed: rank 0 hears it from all, the others from rank 0. */
static dtrain_status_t hear_failure(dt_mpi_bootstrap_t *self, int source)
{
    MPI_Request request;
    dt_mpi_hello_t *hello = &self->hellos[source];
    dtrain_status_t status = dt_mpi_check(
        MPI_Irecv(hello, DT_MPI_HELLO_BYTES, MPI_BYTE, source, FAILURE_TAG, self->comm, &request),
        "MPI_Irecv");
    if (status == DTRAIN_OK)
        status = dt_mpi_bootstrap_await(self, &request, "MPI_Irecv");
    self->has_heard |= status == DTRAIN_OK;
    return status;
}

typedef struct probe {
    MPI_Comm comm;
    int found;
    MPI_Status result;
} probe_t;

static int call_probe(void *arguments)
{
    probe_t *probe = arguments;
    return MPI_Iprobe(MPI_ANY_SOURCE, FAILURE_TAG, probe->comm, &probe->found, &probe->result);
}

dtrain_status_t dt_mpi_bootstrap_poll(void *context)
{
    dt_mpi_bootstrap_t *self = context;
    probe_t probe = {.comm = self->comm};
    dtrain_status_t status = dt_mpi_check(dt_mpi_guard(call_probe, &probe), "MPI_Iprobe");
    if (status == DTRAIN_OK && probe.found)
        status = hear_failure(self, probe.result.MPI_SOURCE);
    if (status == DTRAIN_OK && self->has_heard) /* also when the caller did not listen before */
        status = dt_mpi_hello_check(self->hellos, self->rank, self->size);
    return status == DTRAIN_OK ? dt_mpi_watch_check(&self->watch) : status;
}

/* This rank fails, but MPI may still hold the message that tells the others why; and what others
 * tell has to be taken, lest it come to a communicator that is gone. The last error stays. */
static void settle(dt_mpi_bootstrap_t *self)
{
    char error[DT_ERROR_MAX];
    int64_t end = dt_now_ns() + SETTLE_NS;
    const struct timespec pause = {.tv_nsec = DT_NS_PER_MS};
    dtrain_status_t status = DTRAIN_OK;
    dt_text_format(error, sizeof error, "%s", dt_last_error());
    while (dt_now_ns() < end && status != DTRAIN_ERR_RANK_LOST) {
        status = dt_mpi_bootstrap_poll(self);
        nanosleep(&pause, NULL);
    }
    dt_fail(status, "%s", error);
}

static void tell(dt_mpi_bootstrap_t *self, int rank, int64_t limit_ns)
{
    MPI_Request request;
    if (MPI_Isend(&self->hellos[self->size], DT_MPI_HELLO_BYTES, MPI_BYTE, rank, FAILURE_TAG,
                  self->comm, &request) == MPI_SUCCESS &&
        dt_mpi_finish(&request, limit_ns, "MPI_Isend") != DTRAIN_OK)
        self->is_pending = 1;
}

/* Rank 0 waits for this rank to connect, and tells the others when it hears that it cannot. When it
 * is rank 0 that fails, the others may still be trying to reach it. */
static dtrain_status_t tell_failure(dt_mpi_bootstrap_t *self, dtrain_status_t status)
{
    dt_mpi_hello_t *own = &self->hellos[self->size];
    /* Of a death rank 0 mostly knows, and it may be rank 0's. */
    int64_t limit = dt_now_ns() + (status == DTRAIN_ERR_RANK_LOST ? SETTLE_NS / 5 : SETTLE_NS);
    dt_mpi_hello_write(own, &self->config, status);
    if (self->rank != 0)
        tell(self, 0, limit);
    for (int rank = 1; self->rank == 0 && rank < self->size; rank++)
        tell(self, rank, limit);
    settle(self);
    if (self->has_heard &&
        self->rank != 0) /* that is the cause; what rank 0 hears now is its own */
        return dt_mpi_hello_check(self->hellos, self->rank, self->size);
    return dt_fail(status, "%s", own->is.error);
}

dtrain_status_t dt_mpi_bootstrap_tell(dt_mpi_bootstrap_t *self, dtrain_status_t status)
{
    dt_mpi_hello_t *own = &self->hellos[self->size];
    int64_t limit = dt_now_ns() + SETTLE_NS;
    if (self->has_heard) /* others know then, as this one does */
        return status;
    dt_mpi_hello_write(own, &self->config, status);
    for (int rank = 0; rank < self->size; rank++) {
        if (rank != self->rank)
            tell(self, rank, limit);
    }
    return dt_fail(status, "%s", own->is.error);
}

static int all_share_sockets(const dt_mpi_bootstrap_t *self)
{
    for (int i = 1; i < self->size; i++) {
        if (!dt_mpi_hello_shares_sockets(&self->hellos[0], &self->hellos[i]))
            return 0;
    }
    return 1;
}

static dtrain_status_t make_topology(dt_mpi_bootstrap_t *self)
{
    return dt_mpi_hello_topology(self->hellos, self->rank, self->size, &self->world.topology);
}

/* Also when rank 0 has no address: the others wait to hear it. */
static dtrain_status_t tell_address(dt_mpi_bootstrap_t *self, dtrain_status_t status)
{
    MPI_Request request;
    dt_mpi_address_t *message = self->message;
    if (self->rank == 0) {
        message->status = status;
        if (status != DTRAIN_OK)
            dt_text_format(message->error, sizeof message->error, "%s", dt_last_error());
    }
    status = dt_mpi_check(
        MPI_Ibcast(message, (int)sizeof *message, MPI_BYTE, 0, self->comm, &request), "MPI_Ibcast");
    if (status == DTRAIN_OK)
        status = dt_mpi_bootstrap_await(self, &request, "MPI_Ibcast");
    if (status != DTRAIN_OK || message->status == DTRAIN_OK)
        return status;
    self->is_agreed = 1;
    message->error[sizeof message->error - 1] = '\0';
    return dt_fail(message->status < 0 ? (dtrain_status_t)message->status
                                       : DTRAIN_ERR_COMMUNICATION,
                   self->rank == 0 ? "%s" : "rank 0 cannot join: %s", message->error);
}

static dtrain_status_t connect_as_hub(dt_mpi_bootstrap_t *self)
{
    dt_sock_listener_t *listener = NULL;
    dt_sock_meanwhile_t meanwhile = {dt_mpi_bootstrap_poll, self};
    dtrain_status_t status = make_topology(self);
    if (status == DTRAIN_OK)
        status = dt_sock_listen(!all_share_sockets(self), self->config.network_interface,
                                &self->message->address, &listener);
    status = tell_address(self, status);
    if (status != DTRAIN_OK) {
        dt_sock_listener_free(listener);
        return status;
    }
    int64_t left = self->deadline_ns - dt_now_ns();
    int64_t earlier = left / 4 < VERDICT_NS ? left / 4 : VERDICT_NS;
    status = dt_sock_accept(listener, self->size, self->deadline_ns - earlier, meanwhile,
                            &self->world.control);
    return status == DTRAIN_OK ? status : tell_failure(self, status);
}

static dtrain_status_t connect_to_hub(dt_mpi_bootstrap_t *self)
{
    dt_sock_meanwhile_t meanwhile = {dt_mpi_bootstrap_poll, self};
    int same_node = dt_mpi_hello_shares_sockets(&self->hellos[0], &self->hellos[self->rank]);
    dtrain_status_t status = tell_address(self, DTRAIN_OK);
    if (status != DTRAIN_OK)
        return status;
    status = make_topology(self);
    if (status == DTRAIN_OK)
        status = dt_sock_connect(&self->message->address, self->rank, same_node, self->deadline_ns,
                                 meanwhile, &self->world.control);
    return status == DTRAIN_OK ? status : tell_failure(self, status);
}

static dtrain_status_t connect_control(dt_mpi_bootstrap_t *self)
{
    int64_t now = dt_now_ns();
    int64_t span = self->config.init_timeout_ns;
    int64_t least = after(now, span < DT_MPI_CONNECT_NS ? span : DT_MPI_CONNECT_NS);
    if (self->deadline_ns < least)
        self->deadline_ns = least;
    self->is_agreed = 0;
    dt_fault_point(DT_FAULT_INIT_CONNECT);
    return self->rank == 0 ? connect_as_hub(self) : connect_to_hub(self);
}

/* ---- All of it ------------------------------------------------------------------------------- */

/* Brings all ranks to the same end of a step, which this one ends with `status`. */
static dtrain_status_t conclude(dt_mpi_bootstrap_t *self, dtrain_status_t status, const char *what)
{
    char error[DT_ERROR_MAX];
    dtrain_status_t worst = status;
    dt_text_format(error, sizeof error, "%s", dt_last_error());
    if (status == DTRAIN_ERR_TIMEOUT || status == DTRAIN_ERR_RANK_LOST || self->is_agreed)
        return status;
    dtrain_status_t agreed = dt_mpi_bootstrap_agree(self, status, &worst);
    if (status != DTRAIN_OK)
        dt_fail(status, "%s", error);
    if (agreed != DTRAIN_OK || worst == DTRAIN_OK)
        return status != DTRAIN_OK ? status : agreed;
    self->is_agreed = 1;
    if (status == DTRAIN_OK)
        status = dt_fail(worst, "another rank cannot join (%s): %s", what, dt_status_string(worst));
    return status;
}

/* A rank without memory must not leave the others waiting for it. */
static dtrain_status_t reserve(dt_mpi_bootstrap_t *self)
{
    dtrain_status_t status = DTRAIN_OK;
    self->hellos = dt_calloc((size_t)self->size + 1, sizeof *self->hellos);
    self->message = dt_calloc(1, sizeof *self->message);
    if (!self->hellos || !self->message || self->is_starved)
        status = dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for a world of %d ranks", self->size);
    return conclude(self, status, "memory");
}

/* What needs the other ranks, once all have memory. */
static dtrain_status_t join(dt_mpi_bootstrap_t *self)
{
    dtrain_status_t status = conclude(self, connect_control(self), "control connections");
    if (status != DTRAIN_OK)
        return status;
    self->is_agreed = 0;
    status = conclude(self, dt_mpi_node_join(self), "shared memory");
    if (status != DTRAIN_OK)
        return status;
    self->is_agreed = 0;
    return dt_mpi_detect_join(self, all_share_sockets(self));
}

dtrain_status_t dt_mpi_bootstrap_run(dt_mpi_bootstrap_t *self, dtrain_status_t status)
{
    char error[DT_ERROR_MAX];
    dt_text_format(error, sizeof error, "%s", dt_last_error());
    dtrain_status_t step = duplicate(self, self->parent);
    if (step != DTRAIN_OK)
        return step;
    step = reserve(self);
    if (step == DTRAIN_OK) {
        if (status != DTRAIN_OK)
            dt_fail(status, "%s", error);
        step = greet(self, status);
    }
    if (step == DTRAIN_OK && self->size > 1)
        step = join(self);
    if (step != DTRAIN_OK && self->is_agreed)
        settle(self);
    self->world.may_hang = self->p2p != NULL;
    return step;
}

void dt_mpi_bootstrap_finish(dt_mpi_bootstrap_t *self)
{
    self->num_watched = self->watch.count;
    dt_mpi_watch_close(&self->watch);
    if (self->is_pending)
        return;
    dt_free(self->hellos);
    dt_free(self->message);
    dt_free(self->meetings);
    dt_free(self->reports);
    self->hellos = NULL;
    self->message = NULL;
    self->meetings = NULL;
    self->reports = NULL;
}
