#include "server/worker/machine/compute_threads.hpp"

#include <ATen/Parallel.h>

#include <thread>

#include "base/cores.hpp"

namespace distilld {

std::uint32_t set_compute_threads(std::uint32_t threads) {
    if (threads == 0) {
        threads = core_count();
    }
    at::set_num_threads(static_cast<int>(threads));
    return threads;
}

void compute_alone() {
    // The query also sets this thread's number to the process's, as its first tensor operation would.
    const int of_process = at::get_num_threads();
    at::set_num_threads(1);
    // The number set last also applies to threads that have not computed yet.
    std::thread([of_process] { at::set_num_threads(of_process); }).join();
}

}  // namespace distilld
