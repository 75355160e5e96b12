/*
 * mpi_segments.h - the named files through which Open MPI's processes of a node share memory
 * (/dev/shm/vader_segment.…). Its launcher removes them; when that was killed, nobody does.
 */
#ifndef DT_COMM_MPI_MPI_SEGMENTS_H
#define DT_COMM_MPI_MPI_SEGMENTS_H

/* Removes the names of those that this process has mapped, its own and those of its peers: for one
 * that MPI ends, with its whole job. What is mapped stays usable. */
void dt_mpi_segments_remove(void);

/* The path in a line of /proc/PID/maps when it is that of such a file, else NULL. Changes the line.
 */
const char *dt_mpi_segment_of(char *line);

#endif
