#pragma once

#include <cstdint>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"

namespace distilld {

/// A rectangle of a micro-batch's positions (b, t): those for which one request brings the rows.
struct RequestPart {
    std::uint32_t first_row = 0;
    std::uint32_t rows = 0;
    std::uint32_t first_column = 0;
    std::uint32_t columns = 0;

    friend bool operator==(const RequestPart&, const RequestPart&) = default;
};

/// What a server takes in one request; 0 = no limit is known.
struct RequestLimits {
    std::uint64_t max_rows = 0;    ///< sequences
    std::uint64_t max_tokens = 0;  ///< positions, padding among them
};

/// The whole micro-batch.
[[nodiscard]] RequestPart whole_batch(const TokenBatch& tokens) noexcept;

/// The sequences of a micro-batch in their order, as many a request as the limits allow, each in full width. Fails when
/// a single sequence is above `max_tokens`.
[[nodiscard]] Result<std::vector<RequestPart>> split_rows(const TokenBatch& tokens, const RequestLimits& limits);

/// The input ids at the positions of a part, row-major [part.rows, part.columns].
[[nodiscard]] std::vector<std::int32_t> input_ids_of(const TokenBatch& tokens, const RequestPart& part);

/// How many positions of each of the part's sequences are not padding, [part.rows]; 0 to part.columns.
[[nodiscard]] std::vector<std::int32_t> lengths_of(const TokenBatch& tokens, const RequestPart& part);

/// What one request brought.
struct AnsweredPart {
    RequestPart part;
    TeacherTargets targets;  ///< of part.rows × part.columns positions
};

/// Puts the parts of one micro-batch together. A single part that is the whole batch is passed on as it is; others are
/// copied into arrays of the batch's shape. Positions that no part has are marked in TeacherTargets::loss_mask. The
/// parts must not overlap, and agree in kind, width and element types. Errors (ErrorKind::teacher) name the part.
[[nodiscard]] Result<TeacherTargets> join_targets(const TokenBatch& tokens, std::vector<AnsweredPart> parts);

}  // namespace distilld
