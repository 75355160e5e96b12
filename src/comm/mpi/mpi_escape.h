/*
 * mpi_escape.h - a way back out of MPI when it would end the process.
 *
 * Open MPI ends the process, inside whatever call it is in, when a peer's death has broken a TCP
 * connection; MPI_ERRORS_RETURN does not change that. So a survivor would be gone before it can
 * tell the application who is lost. For calls that are made through dt_mpi_guard, on the same
 * thread, that is changed; for all others it is as before.
 *
 * Open MPI 4: the function that it ends a process with is a field of a struct of its run-time
 * layer. It is replaced by one that jumps back out of the call. What was jumped out of may be half
 * done and hold MPI's locks. Where the process does end, MPI's files go first (mpi_segments.h).
 *
 * Open MPI 5, unless its own fault tolerance is on, which returns errors: its transports tell of
 * broken connections by a function that can be registered with them, by default one that ends the
 * process. The one that is registered here lets the call go on.
 *
 * After either the process makes no call of MPI any more. That is what a lost rank means anyway;
 * see docs/design.md.
 */
#ifndef DT_COMM_MPI_MPI_ESCAPE_H
#define DT_COMM_MPI_MPI_ESCAPE_H

/* What a guarded call returns in place of MPI's code (never negative) once there was an escape. */
#define DT_MPI_ESCAPED (-1)

/* Once MPI is up; again is nothing. Where this MPI has nothing of the kind there is nothing to do.
 */
void dt_mpi_escape_install(void);

/* Makes a call of MPI; not from within another one. Returns its code, or DT_MPI_ESCAPED, also when
 * there was an escape from an earlier call, on whatever thread: then it is not made. */
int dt_mpi_guard(int (*call)(void *arguments), void *arguments);

/* 1 after an escape, or dt_mpi_give_up. */
int dt_mpi_has_escaped(void);

/* A call of MPI has not come back, and is not waited for: none is made any more, as after an
 * escape. Any thread. */
void dt_mpi_give_up(void);

#endif
