/*
 * mpi_library.h - whose MPI it is. MPI has one state a process, so what is remembered about it
 * (whether we initialised it, and whether it can be finalized) is a process's too, behind a lock.
 */
#ifndef DT_COMM_MPI_MPI_LIBRARY_H
#define DT_COMM_MPI_MPI_LIBRARY_H

#include <dtrain/dtrain.h>

/*
 * Before a world is joined: initialises MPI when nobody has, unless the world is made of a
 * caller's communicator (`has_comm`), and checks the thread level. MPI that we initialised is
 * finalized when the process exits, if every world was left cleanly: MPI_Finalize waits for all
 * ranks, so after a failure it could hang.
 *
 * *may_call is set to 1 where this thread may call MPI at least for now, even though the level is
 * too low for a world: then the other ranks can still be told.
 */
dtrain_status_t dt_mpi_library_enter(dtrain_mpi_threads_t threads, int has_comm, int *may_call);

/* After a world was left, or could not be joined. Only after an enter that gave OK or may_call. */
void dt_mpi_library_leave(int clean);

#endif
