#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/error.hpp"
#include "base/files/mapped_file.hpp"

namespace distilld {

/// The format that `llama-perplexity --kl-divergence-base FILE` of llama.cpp writes: a text in chunks of n_ctx tokens,
/// and the log-probabilities of all tokens, in 16-bit steps, for the second half of each chunk. Layout, little-endian:
///
///     8 bytes "_logits_"; i32 n_ctx, n_vocab, n_chunk; i32 tokens[n_chunk · n_ctx];
///     per chunk n_ctx − 1 − ⌊n_ctx / 2⌋ rows: f32 scale, f32 min, u16 codes[n_vocab], padded to an even number;
///     log-probability = scale · code + min.
///
/// Row j of a chunk predicts the token after token ⌊n_ctx / 2⌋ + j. Immutable, any thread.
class KldFile {
  public:
    /// Checks the sizes against the file's size. Errors (invalid_input, io) name the file.
    static Result<KldFile> open(const std::filesystem::path& file);

    [[nodiscard]] std::uint32_t context() const noexcept { return context_; }        ///< n_ctx, at least 4
    [[nodiscard]] std::uint32_t vocabulary() const noexcept { return vocabulary_; }  ///< n_vocab
    [[nodiscard]] std::uint32_t chunks() const noexcept { return chunks_; }
    /// The first position of a chunk with a row; the last is context() − 2.
    [[nodiscard]] std::uint32_t first_row() const noexcept { return context_ / 2; }

    /// Token `position` of a chunk. Negative and too large ids are returned as they are.
    [[nodiscard]] std::int32_t token(std::uint32_t chunk, std::uint32_t position) const noexcept;

    /// The log-probabilities of the token after `position`, which is first_row() to context() − 2. `values` has
    /// vocabulary() elements.
    void read_row(std::uint32_t chunk, std::uint32_t position, std::span<float> values) const noexcept;

  private:
    KldFile(MappedFile file, std::uint32_t context, std::uint32_t vocabulary, std::uint32_t chunks)
        : file_(std::move(file)), context_(context), vocabulary_(vocabulary), chunks_(chunks) {}

    MappedFile file_;
    std::uint32_t context_;
    std::uint32_t vocabulary_;
    std::uint32_t chunks_;
};

}  // namespace distilld
