#include "comm/mpi/mpi_segments.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *dt_mpi_segment_of(char *line)
{
    char *path = strchr(line, '/');
    if (!path)
        return NULL;
    path[strcspn(path, "\n")] = '\0';
    const char *name = strrchr(path, '/') + 1;
    /* What is removed already has " (deleted)" behind its name. */
    int is_one = strncmp(name, "vader_segment.", 14) == 0 && !strchr(name, ' ');
    return is_one ? path : NULL;
}

void dt_mpi_segments_remove(void)
{
    char line[PATH_MAX + 128];
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof line, maps)) {
        const char *path = dt_mpi_segment_of(line);
        if (path)
            unlink(path);
    }
    if (maps)
        fclose(maps);
}
