/* dtrain-flight - reads dumps of flight recorders, and says which rank holds the others up. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/flight/report.h"

static const char usage[] =
    "usage: dtrain-flight [--json] FILE...\n"
    "\n"
    "Reads dumps of the last operations of all ranks, as dtrain_flight_dump, flight_dir and\n"
    "flight_signal write them, and says what is unfinished, where ranks went different ways and\n"
    "which rank is behind. Several files of one world, as from several nodes, are put together; "
    "of\n"
    "a rank that is in more than one the newest counts. A file that was cut is read as far as it\n"
    "goes.\n"
    "\n"
    "  -j, --json   one JSON object in place of the text\n"
    "  -h, --help   this text\n"
    "\n"
    "The exit status is 0 when the files could be read, else 2.\n";

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0}};
    int is_json = 0, option;
    while ((option = getopt_long(argc, argv, "jh", options, NULL)) != -1) {
        if (option == 'h') {
            fputs(usage, stdout);
            return 0;
        }
        if (option != 'j') {
            fputs("dtrain-flight: see 'dtrain-flight --help'\n", stderr);
            return 2;
        }
        is_json = 1;
    }
    if (optind == argc) {
        fputs(usage, stderr);
        return 2;
    }
    flight_dump_t dump;
    flight_verdict_t verdict;
    if (flight_dump_read(&dump, argv + optind, argc - optind) != 0) {
        flight_dump_free(&dump);
        return 2;
    }
    int failed = flight_judge(&dump, &verdict) != 0;
    if (failed)
        fputs("dtrain-flight: out of memory\n", stderr);
    else if (is_json)
        flight_report_json(stdout, &dump, &verdict);
    else
        flight_report(stdout, &dump, &verdict);
    flight_verdict_free(&verdict);
    flight_dump_free(&dump);
    return failed ? 2 : 0;
}
