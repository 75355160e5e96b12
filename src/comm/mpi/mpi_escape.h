/*
 * mpi_escape.h - a way back out of MPI when it would end the process.
 *
 * Open MPI 4 ends the process, inside whatever call it is in, when it writes to a peer's TCP
 * connection that the peer's death has reset; MPI_ERRORS_RETURN does not change that. So a survivor
 * would be gone before it can tell the application who is lost. The function that Open MPI ends a
 * process with is a field of a struct of its run-time layer; it is replaced by one that jumps back
 * out of the call instead, when the call was made through dt_mpi_guard on the same thread, and that
 * does as before when it was not.
 *
 * What was jumped out of may be half done and hold MPI's locks: from then on the process makes no
 * call of MPI any more. That is what a lost rank means anyway; see docs/design.md.
 */
#ifndef DT_COMM_MPI_MPI_ESCAPE_H
#define DT_COMM_MPI_MPI_ESCAPE_H

/* What a guarded call returns in place of MPI's code (never negative) once there was an escape. */
#define DT_MPI_ESCAPED (-1)

/* Once MPI is up; again is nothing. Where this MPI has no such function there is nothing to do. */
void dt_mpi_escape_install(void);

/* Makes a call of MPI; not from within another one. Returns its code, or DT_MPI_ESCAPED, also when
 * an earlier call had to be escaped from, on whatever thread: then it is not made. */
int dt_mpi_guard(int (*call)(void *arguments), void *arguments);

int dt_mpi_has_escaped(void);

#endif
