#include "server/worker/compute_threads.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <thread>

namespace distilld {

std::uint32_t set_compute_threads(std::uint32_t threads) {
    if (threads == 0) {
        threads = std::max(1U, std::thread::hardware_concurrency());
    }
    at::set_num_threads(static_cast<int>(threads));
    return threads;
}

}  // namespace distilld
