#pragma once

#include <cstdint>

namespace distilld {

/// Sets the number of threads that libtorch computes with; 0 = one per core that the process may use. Returns the
/// number. Call before any tensor operation.
std::uint32_t set_compute_threads(std::uint32_t threads);

/// Lets libtorch compute with the calling thread alone when this thread asks for it; others keep their number.
void compute_alone();

}  // namespace distilld
