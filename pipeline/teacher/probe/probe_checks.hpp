#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "pipeline/core/micro_batch.hpp"

/// The tokens of the probe, and checks of the answer beyond its shape.
namespace distilld {

/// Returns what is wrong with the probabilities of top-k rows: they must sum to 1 within 2 % (half precision) and name
/// each token once. The other tokens share the tail (or the rest to 1), and none may be more probable than the last
/// named one. `vocabulary` is the student's; 0 = unknown.
[[nodiscard]] std::optional<std::string> normalisation_defect(const TeacherTargets& targets, std::uint32_t vocabulary);

/// Returns an error if top-k rows have fewer tokens than both `top_k` and the vocabulary.
[[nodiscard]] std::optional<std::string> width_defect(const TeacherTargets& targets, std::uint32_t top_k,
                                                      std::uint32_t vocabulary);

/// Whether fp32 rows seem to come from bf16 or fp16 logits: then all differences within a row lie on a grid of 2⁻¹⁰, as
/// for logits above 1. False if there are too few values to tell.
[[nodiscard]] bool looks_like_half_precision(const TeacherTargets& targets);

/// The column at which every second sequence of the probe's batches has another token. There is a column before it and
/// a row after it, so shifts to either side are detected.
constexpr std::uint32_t kAlignmentColumn = 1;
constexpr std::uint32_t kAlignmentColumns = 4;
constexpr std::uint32_t kAlignmentRows = 2;

/// Returns what is wrong with the rows of a batch whose first two sequences differ only in the token at
/// kAlignmentColumn: the rows before it must be the same, and the row at it must differ. Rows that hardly differ, as
/// from a small random model, and rows that no token changes are not judged. Any thread; linear in the width.
[[nodiscard]] std::optional<std::string> alignment_defect(const TeacherTargets& targets);

inline constexpr std::uint32_t kProbeColumns = 3;

/// The first request to every teacher, so that fingerprints can be compared: sequences of tokens in every vocabulary
/// (1, 2, 0, and in longer sequences others below 32). Every second sequence has another token at kAlignmentColumn. The
/// last position has no label.
[[nodiscard]] std::shared_ptr<const TokenBatch> probe_tokens(std::uint32_t vocabulary, std::uint32_t rows,
                                                             std::uint32_t columns = kProbeColumns);

}  // namespace distilld
