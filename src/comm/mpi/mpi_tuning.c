#include "comm/mpi/mpi_tuning.h"

#include <mpi.h>
#include <string.h>

#include "base/config.h"

typedef struct setting {
    const char *variable, *value;
} setting_t;

static const setting_t open_mpi[] = {
    /*
     * Longer messages are announced, and sent when the receiver has answered. On a link that is
     * full, both wait behind the data under way. Our receives are posted before, so there is
     * nothing to protect: all segments of a ring go at once. Three nodes at 200 Mbit/s, 16 MiB:
     * 1.09 instead of 1.29 times what the bytes need.
     */
    {"OMPI_MCA_btl_tcp_eager_limit", "524288"},
};

void dt_mpi_tune(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    if (MPI_Get_library_version(version, &length) != MPI_SUCCESS || !strstr(version, "Open MPI"))
        return;
    for (size_t i = 0; i < sizeof open_mpi / sizeof open_mpi[0]; i++)
        dt_config_suggest(open_mpi[i].variable, open_mpi[i].value);
}
