#include "server/worker/compute_threads.hpp"

#include <ATen/Parallel.h>

#include <thread>

namespace distilld {

void set_compute_threads(std::uint32_t threads) {
    const std::uint32_t cores = std::thread::hardware_concurrency();
    at::set_num_threads(static_cast<int>(threads > 0 ? threads : (cores > 0 ? cores : 1)));
}

}  // namespace distilld
