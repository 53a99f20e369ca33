#pragma once

#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "models/training/device_memory.hpp"
#include "pipeline/graph/student.hpp"

namespace distilld {

struct MemoryProbeOptions {
    std::uint32_t sequence_length = 0;
    std::uint32_t top_k = 0;  ///< of the teacher's answers; ignored without a teacher
    /// Width of the teacher's hidden states; above 0: it sends these, and the student has the head for them.
    std::uint32_t hidden_size = 0;
    bool with_teacher = false;
    std::uint32_t replicas = 1;               ///< micro-batches that train at once
    std::uint64_t window_bytes = 0;           ///< set aside for prefetched answers
    std::uint32_t max_batch_size = 64;        ///< max_batch_size() of the data
    std::uint64_t max_positions = 1U << 14U;  ///< upper bound for batch_size × sequence_length: on a CPU larger
                                              ///< micro-batches do not bring more tokens per second
};

/// The value of `batch_size: "auto"`.
struct BatchAdvice {
    std::uint32_t batch_size = 1;
    std::uint64_t base_bytes = 0;          ///< without activations
    std::uint64_t bytes_per_sequence = 0;  ///< slope between the two probes
    std::uint64_t available_bytes = 0;     ///< free memory of the device
    std::string description;               ///< the memory for sequences, for the log
};

/// Trains on made-up micro-batches of 1 and 4 sequences, reads the peak of `memory` after each, and takes the largest
/// power of two up to max_batch_size that fits into 60% of the rest; 1 if 4 did not fit. Drops the gradients, keeps the
/// weights. The result depends on the machine, never on time; a resumed run takes its checkpoint's. Compute thread.
Result<BatchAdvice> advise_batch_size(Student& student, models::DeviceMemory& memory,
                                      const MemoryProbeOptions& options);

}  // namespace distilld
