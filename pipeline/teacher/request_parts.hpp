#pragma once

#include <cstdint>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"

namespace distilld {

/// A rectangle of a micro-batch's positions (b, t) for one request.
struct RequestPart {
    std::uint32_t first_row = 0;
    std::uint32_t rows = 0;
    std::uint32_t first_column = 0;
    std::uint32_t columns = 0;

    friend bool operator==(const RequestPart&, const RequestPart&) = default;
};

/// Limits of one request; 0 = unknown.
struct RequestLimits {
    std::uint64_t max_rows = 0;    ///< sequences
    std::uint64_t max_tokens = 0;  ///< positions, including padding
};

/// The whole micro-batch.
[[nodiscard]] RequestPart whole_batch(const TokenBatch& tokens) noexcept;

/// Splits the sequences of a micro-batch, in order and in full width, into as few requests as the limits allow. Fails
/// if a single sequence exceeds `max_tokens`.
[[nodiscard]] Result<std::vector<RequestPart>> split_rows(const TokenBatch& tokens, const RequestLimits& limits);

/// The input ids at the positions of a part, row-major [part.rows, part.columns].
[[nodiscard]] std::vector<std::int32_t> input_ids_of(const TokenBatch& tokens, const RequestPart& part);

/// Positions that are not padding, per sequence of the part: [part.rows], each 0 to part.columns.
[[nodiscard]] std::vector<std::int32_t> lengths_of(const TokenBatch& tokens, const RequestPart& part);

/// The answer to one request.
struct AnsweredPart {
    RequestPart part;
    TeacherTargets targets;  ///< of part.rows × part.columns positions
};

/// Joins the parts of one micro-batch. A single part for the whole batch is passed on unchanged; others are copied into
/// arrays of the batch's shape. Missing positions are marked in TeacherTargets::loss_mask. The parts must not overlap,
/// and agree in kind, width and element types. Errors (ErrorKind::teacher) name the part.
[[nodiscard]] Result<TeacherTargets> join_targets(const TokenBatch& tokens, std::vector<AnsweredPart> parts);

}  // namespace distilld
