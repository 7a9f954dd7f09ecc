/* The functions of a plug-in for an MPI: plain C, so that it links nothing of mantissa and mantissa nothing
   of MPI. Each is built from mpi/plugin.cpp with one MPI's headers, and loaded where the program finds itself
   among ranks. */
#pragma once

#include <cstddef>

extern "C" {

struct MantissaMpi {
    int rank, ranks;
    /* As Transport's, with arrays of `ranks` entries. They return -1; or the rank that is lost, and write
       the known cause into `why`, `why_size` bytes. */
    int (*start)(const void* const* send, const std::size_t* send_bytes, void* const* receive,
                 const std::size_t* receive_bytes, char* why, std::size_t why_size);
    int (*advance)(char* why, std::size_t why_size);
    int (*finish_oldest)(int* late, char* why, std::size_t why_size);
    void (*abort)(void);
    void (*end)(void);
};

/* Begins MPI. Null where that failed, with the reason in `why`. The result lives as long as the plug-in. */
typedef const MantissaMpi* (*MantissaOpenMpi)(char* why, std::size_t why_size);
}

/* The name of that function in the plug-in, and a number that changes with all of the above. */
#define MANTISSA_OPEN_MPI mantissa_open_mpi_2
