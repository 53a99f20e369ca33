#include "pipeline/core/automatic_batch.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>

#include "base/format.hpp"

namespace distilld {
namespace {

/// A power of two, so that a micro-batch can be halved if memory does not suffice.
std::uint32_t sequences_of(std::uint64_t rows, std::uint32_t micro_batches) {
    const std::uint64_t by_rows = rows / kMinStepsOfEpoch / micro_batches;
    return static_cast<std::uint32_t>(std::bit_floor(std::clamp<std::uint64_t>(by_rows, 1, kMaxAutomaticSequences)));
}

}  // namespace

BatchWish wish_of(const TrainingSpec& training, std::uint64_t rows) noexcept {
    return {rows, training.batch_size_auto ? 0 : training.batch_size,
            training.micro_batches_auto ? 0 : training.micro_batches};
}

std::uint32_t max_batch_size(const BatchWish& wish) {
    return sequences_of(wish.rows, std::max(1U, wish.micro_batches));
}

std::uint32_t micro_batches_for(const BatchWish& wish, std::uint32_t batch_size) {
    return wish.micro_batches != 0 ? wish.micro_batches : std::max(1U, sequences_of(wish.rows, 1) / batch_size);
}

std::uint32_t automatic_replicas(const ReplicaWish& wish) noexcept {
    if (wish.parameters > kMaxParametersOfReplicas) {
        return 1;
    }
    constexpr std::uint64_t kShareOfAvailable = 2;  // a half
    const std::uint64_t by_memory =
        wish.available_bytes / kShareOfAvailable / std::max<std::uint64_t>(1, wish.activation_bytes);
    const std::uint64_t most = std::min({wish.threads, wish.micro_batches, kMaxReplicas});
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(by_memory, 1, std::max<std::uint64_t>(1, most)));
}

std::string describe(const BatchWish& wish, std::uint32_t batch_size, const std::string& of_memory) {
    const std::uint32_t micro_batches = micro_batches_for(wish, batch_size);
    const std::uint64_t step = std::uint64_t{batch_size} * micro_batches;
    std::string text;
    if (wish.batch_size == 0) {
        text = "batch_size auto: " + std::to_string(batch_size);
    }
    if (wish.micro_batches == 0) {
        text += (text.empty() ? "" : ", ") + std::string("micro_batches auto: ") + std::to_string(micro_batches);
    }
    text += ": a step has " + counted(step, "sequence") + ", and an epoch of " + counted(wish.rows, "row") + " has " +
            counted((wish.rows + step - 1) / step, "step");
    if (max_batch_size(wish) < kMaxAutomaticSequences) {
        text += " (no more, so that an epoch has at least " + std::to_string(kMinStepsOfEpoch) +
                " where the data allows it)";
    }
    return text + (of_memory.empty() ? "" : "; " + of_memory);
}

LogEvent steps_line(const TrainingSpec& training, std::uint64_t rows, std::uint64_t total_steps, bool ends_epochs) {
    const std::uint64_t of_step = std::uint64_t{training.batch_size} * training.micro_batches;
    if (training.epochs && ends_epochs) {
        std::array<char, 32> epochs{};
        const auto written = std::to_chars(epochs.data(), epochs.data() + epochs.size(), *training.epochs);
        return {"info", std::string(epochs.data(), written.ptr) +
                            (*training.epochs == 1 ? " epoch of " : " epochs of ") + counted(rows, "row") + ": " +
                            counted(total_steps, "step") + " of up to " + counted(of_step, "sequence")};
    }
    if (training.epochs) {
        return {"info",
                "this run was started by an earlier version and keeps its plan: steps cross epoch boundaries, "
                "and rows after the last whole step are left out: " +
                    counted(total_steps, "step") + " of " + counted(of_step, "sequence")};
    }
    if (rows < of_step) {
        return {"warn",
                "/training/max_steps: a step takes " + counted(of_step, "sequence") + ", but the data has " +
                    counted(rows, "row") +
                    ", so each step repeats rows: lower /training/batch_size or /training/micro_batches, or give "
                    "/training/epochs in place of max_steps, which uses each row at most once per step"};
    }
    return {"info", ""};
}

}  // namespace distilld
