#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace distilld {

/// Label of a position that carries no loss (padding, prompt).
inline constexpr std::int32_t kIgnoredLabel = -100;

/// In TeacherTargets::tail: unknown, so 1 − Σp.
inline constexpr float kUnknownTail = std::numeric_limits<float>::infinity();

/// One of several separate documents of a row: its positions see only their own document and count from 0.
struct RowDocument {
    std::uint32_t row = 0;
    std::uint32_t begin = 0;   ///< column of its first input position
    std::uint32_t length = 0;  ///< input positions, at least 1
    std::uint64_t id = 0;      ///< its number in the dataset
};

enum class ElementType { f16, bf16, f32, f64, i32, u32, i64, u8, boolean };

[[nodiscard]] constexpr std::size_t element_size(ElementType type) noexcept {
    switch (type) {
        case ElementType::f16:
        case ElementType::bf16:
            return 2;
        case ElementType::f64:
        case ElementType::i64:
            return 8;
        case ElementType::u8:
        case ElementType::boolean:
            return 1;
        default:
            return 4;
    }
}

/// Bytes of one array: little-endian, row-major, possibly unaligned inside a response body: copy them, do not cast
/// them.
struct ArrayView {
    ElementType type = ElementType::f32;
    std::span<const std::byte> bytes;
};

/// A named tensor of a micro-batch: [rows, sample_shape…].
struct SampleTensor {
    std::string name;
    std::vector<std::int64_t> sample_shape;  ///< of one row
    ArrayView values;
};

/// The tensor of this name; null if there is none.
[[nodiscard]] inline const SampleTensor* find_tensor(std::span<const SampleTensor> tensors, std::string_view name) {
    const auto found = std::ranges::find(tensors, name, &SampleTensor::name);
    return found == tensors.end() ? nullptr : &*found;
}

/// Token ids of one micro-batch, row-major [rows, columns]. labels[b][t] is the token that follows input_ids[b][..t],
/// already shifted, or kIgnoredLabel if there is none. A row shorter than `columns` is padded on the right. Of a
/// dataset of tensors, each row is a sample: one position with id 0 and label 0, and its part of `tensors`.
struct TokenBatch {
    std::uint64_t number = 0;   ///< micro-batch number, from 0, over the whole job and all its ranks
    std::uint32_t rows = 0;     ///< B
    std::uint32_t columns = 0;  ///< T
    std::vector<std::int32_t> input_ids;
    std::vector<std::int32_t> labels;
    std::vector<std::int32_t> lengths;    ///< [rows] input positions that are not padding
    std::vector<std::uint64_t> row_ids;   ///< [rows] numbers of the dataset's rows; empty without a dataset
    std::vector<RowDocument> documents;   ///< of rows with several, by row and column; empty: one per row
    std::uint64_t target_tokens = 0;      ///< labels that are not kIgnoredLabel
    std::vector<SampleTensor> tensors{};  ///< of samples; empty: the batch is of tokens
    std::shared_ptr<const void> owner{};  ///< keeps their bytes alive
};

/// The teacher's answer for one micro-batch: for each position (b, t), its distribution over the token after
/// input_ids[b][..t]. Protocols shift rows that are aligned differently. Of samples: the teacher's named outputs.
struct TeacherTargets {
    enum class Kind {
        topk,
        logits,
        hidden_states,  ///< the input of the teacher's head; the head is fetched separately
        tensors,        ///< `tensors`, for a batch of samples; width 0, and the arrays are empty
    };
    Kind kind = Kind::topk;
    std::uint32_t rows = 0;        ///< B
    std::uint32_t columns = 0;     ///< T
    std::uint32_t width = 0;       ///< k (topk), V (logits) or H, the hidden size (hidden_states)
    std::uint64_t vocabulary = 0;  ///< tokens that the teacher knows; 0 = unknown
    ArrayView ids;                 ///< topk: [B, T, k] i32 or u32, by descending probability
    ArrayView values;              ///< [B, T, width] f16, bf16 or f32: log-probabilities at temperature 1 (topk),
                                   ///< logits, or hidden states
    ArrayView tail;                ///< topk: [B, T] f32, log of the mass outside the k; kUnknownTail, or empty: 1 − Σp
    ArrayView loss_mask;           ///< [B, T] u8: 0 marks a missing row. It carries no loss, and
                                   ///< its entries in the other arrays are unspecified. Empty: no row is missing
    std::vector<SampleTensor> tensors{};  ///< outputs of the teacher by name
    std::shared_ptr<const void> owner;    ///< keeps the bytes alive
    std::size_t held_bytes = 0;           ///< memory that `owner` holds, counted against the window's byte limit
    std::uint64_t wire_bytes = 0;         ///< bytes of the answers on the wire; 0 = none
};

/// One micro-batch on its way through the graph.
struct MicroBatch {
    std::shared_ptr<const TokenBatch> tokens;
    std::optional<TeacherTargets> targets;  ///< absent: plain training
    std::uint64_t step_target_tokens = 0;   ///< target tokens of the whole step: the loss divides by it
    std::uint32_t index = 0;                ///< among the micro-batches of the step
    std::uint64_t own_number = 0;           ///< among those that this process trains on
    bool ends_step = false;                 ///< of these, the last one of its step
};

}  // namespace distilld
