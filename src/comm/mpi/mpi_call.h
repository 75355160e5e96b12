/* mpi_call.h - MPI's errors as ours, and waiting for MPI without blocking in it: a rank that is
 * dead makes a blocking call hang for ever. */
#ifndef DT_COMM_MPI_MPI_CALL_H
#define DT_COMM_MPI_MPI_CALL_H

#include <mpi.h>
#include <stdint.h>

#include <dtrain/dtrain.h>

/* OK, or COMMUNICATION with the name of what was called and MPI's own text; RANK_LOST where the
 * code says so. It may be one of dt_mpi_guard (mpi_escape.h). */
dtrain_status_t dt_mpi_check(int code, const char *what);

/*
 * Tests until the request is done. TIMEOUT, without a text, when the deadline (dt_now_ns) comes
 * first: the request is still under way then and its buffers must live on.
 */
dtrain_status_t dt_mpi_finish(MPI_Request *request, int64_t deadline_ns, const char *what);

#endif
