#include "server/worker/machine/memory_probe.hpp"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace distilld {

namespace {

constexpr double kShareOfAvailable = 0.6;
constexpr std::uint32_t kSmallProbe = 1;
constexpr std::uint32_t kLargeProbe = 4;

MicroBatch made_up_batch(std::uint32_t rows, const MemoryProbeOptions& options, std::uint32_t vocabulary) {
    const std::uint32_t columns = options.sequence_length;
    const std::size_t positions = static_cast<std::size_t>(rows) * columns;
    auto tokens = std::make_shared<TokenBatch>();
    tokens->rows = rows;
    tokens->columns = columns;
    tokens->input_ids.assign(positions, 0);
    tokens->labels.assign(positions, 0);
    tokens->lengths.assign(rows, static_cast<std::int32_t>(columns));
    tokens->target_tokens = positions;
    MicroBatch batch;
    batch.step_target_tokens = positions;
    if (options.with_teacher) {
        TeacherTargets targets;
        targets.rows = rows;
        targets.columns = columns;
        const bool topk = options.top_k > 0;
        targets.kind = topk ? TeacherTargets::Kind::topk : TeacherTargets::Kind::logits;
        targets.width = topk ? std::min(options.top_k, vocabulary) : vocabulary;
        if (options.hidden_size > 0) {
            targets.kind = TeacherTargets::Kind::hidden_states;
            targets.width = options.hidden_size;
        }
        const std::size_t entries = positions * targets.width;
        auto values = std::make_shared<std::vector<float>>(entries, topk ? -10.0F : 0.0F);
        targets.values = {ElementType::f32, std::as_bytes(std::span(*values))};
        auto ids = std::make_shared<std::vector<std::int32_t>>();
        if (topk) {
            ids->resize(entries);
            for (std::size_t i = 0; i < entries; ++i) {
                (*ids)[i] = static_cast<std::int32_t>(i % targets.width);
            }
            targets.ids = {ElementType::i32, std::as_bytes(std::span(*ids))};
        }
        targets.owner = std::make_shared<std::pair<decltype(values), decltype(ids)>>(values, ids);
        batch.targets = std::move(targets);
    }
    batch.tokens = std::move(tokens);
    return batch;
}

std::uint64_t peak_of(Student& student, models::DeviceMemory& memory, std::uint32_t rows,
                      const MemoryProbeOptions& options) {
    const std::unique_ptr<StagedBatch> staged = student.stage(made_up_batch(rows, options, student.vocabulary_size()));
    memory.reset_peak();
    student.train(*staged);
    const std::uint64_t peak = memory.peak_bytes();
    student.discard_gradients();
    return peak;
}

std::string megabytes(std::uint64_t bytes) {
    return std::to_string(bytes / 1'000'000) + " MB";
}

}  // namespace

Result<BatchAdvice> advise_batch_size(Student& student, models::DeviceMemory& memory,
                                      const MemoryProbeOptions& options) {
    BatchAdvice advice;
    peak_of(student, memory, kSmallProbe, options);  // allocates what stays: gradients, thread pools
    const std::uint64_t small = peak_of(student, memory, kSmallProbe, options);
    std::uint64_t large = 0;
    try {
        large = peak_of(student, memory, kLargeProbe, options);
    } catch (const OutOfDeviceMemory&) {
        student.discard_gradients();
        advice.available_bytes = memory.available_bytes();
        advice.description = std::to_string(kLargeProbe) +
                             " sequences at once do not fit into the device's memory, of which " +
                             megabytes(advice.available_bytes) + " are available";
        return advice;
    }
    if (small == 0 || large == 0) {
        return io_error(
            "/training/batch_size: cannot be auto, because the system does not report how much memory is used");
    }
    advice.bytes_per_sequence =
        std::max<std::uint64_t>(1, (large - std::min(large, small)) / (kLargeProbe - kSmallProbe));
    advice.base_bytes = small - std::min(small, advice.bytes_per_sequence);
    advice.available_bytes = memory.available_bytes();
    const auto share = static_cast<std::uint64_t>(kShareOfAvailable * static_cast<double>(advice.available_bytes));
    const std::uint64_t budget = share - std::min(share, options.window_bytes);
    const std::uint64_t fits = std::max<std::uint64_t>(1, budget / advice.bytes_per_sequence / options.replicas);
    const std::uint64_t by_positions = std::max<std::uint64_t>(1, options.max_positions / options.sequence_length);
    const std::uint64_t max = std::min({fits, by_positions, static_cast<std::uint64_t>(options.max_batch_size)});
    while (2ULL * advice.batch_size <= max) {
        advice.batch_size *= 2;
    }
    advice.description =
        "there is memory for " + std::to_string(fits) + " sequences at once" +
        (options.replicas > 1 ? " for each of " + std::to_string(options.replicas) + " replicas" : "") + " (" +
        megabytes(advice.bytes_per_sequence) + " each, " + megabytes(advice.available_bytes) + " available)";
    if (by_positions < std::min<std::uint64_t>(fits, options.max_batch_size)) {
        advice.description +=
            ", but more than " + std::to_string(options.max_positions) + " positions at once are no faster";
    }
    return advice;
}

}  // namespace distilld
