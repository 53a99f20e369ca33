#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pipeline/core/micro_batch.hpp"
#include "pipeline/store/bit_packing.hpp"
#include "pipeline/store/manifest.hpp"
#include "pipeline/store/row_codec.hpp"

namespace distilld {

/// What the teacher said of one position, on its way into a store.
struct PositionTargets {
    std::uint64_t row = 0;
    std::uint32_t position = 0;
    ArrayView raw;                      ///< the logits as they came; empty when it said k entries
    std::span<const float> logits;      ///< the same, widened
    std::span<const std::int32_t> ids;  ///< the k entries, by descending probability
    std::span<const float> values;      ///< their log-probabilities
    float tail = 0;                     ///< log of the mass outside the k
};

/// Where the targets of one row of a batch go: position t at t · width of each array.
struct TargetArrays {
    std::int32_t* ids = nullptr;  ///< nullptr: logits
    std::byte* values = nullptr;
    float* tail = nullptr;  ///< nullptr: logits
};

/// Tokens of a row whose positions follow each other.
struct TokenRun {
    std::uint32_t token = 0;     ///< the first, counted in the row's tokens
    std::uint32_t position = 0;  ///< of it
    std::uint32_t count = 0;
};

/// One format of the store: how a position becomes bytes of streams, and back. Immutable, any thread.
class PositionFormat {
  public:
    enum class Needs { entries, logits };

    virtual ~PositionFormat() = default;
    /// What encode() is given.
    [[nodiscard]] virtual Needs needs() const = 0;
    [[nodiscard]] virtual const std::vector<StoreStream>& streams() const = 0;
    /// Of the targets that it gives: entries of a position, and the type of their values.
    [[nodiscard]] virtual std::uint32_t width() const = 0;
    [[nodiscard]] virtual ElementType value_type() const = 0;

    /// Appends the position to the row's streams.
    virtual void encode(const PositionTargets& position, StoredRow& row) const = 0;
    /// Why the bytes cannot be a row of this format: lengths of streams that are not those of its tokens, ids outside
    /// the vocabulary.
    [[nodiscard]] virtual std::optional<std::string> find_defect(const StoredRowView& row) const = 0;
    /// `runs` are all tokens of the row; it has no defect.
    virtual void decode(const StoredRowView& row, std::span<const TokenRun> runs, const TargetArrays& target) const = 0;
};

[[nodiscard]] std::unique_ptr<PositionFormat> make_position_format(const StoreManifest& manifest);
/// The formats, one each.
[[nodiscard]] std::unique_ptr<PositionFormat> make_full_format(const StoreManifest& manifest);
[[nodiscard]] std::unique_ptr<PositionFormat> make_topk_format(const StoreManifest& manifest);
[[nodiscard]] std::unique_ptr<PositionFormat> make_packed_format(const StoreManifest& manifest);
[[nodiscard]] std::unique_ptr<PositionFormat> make_sampled_format(const StoreManifest& manifest);

template <class T>
void append_value(std::vector<std::byte>& bytes, T value) {
    const auto raw = std::as_bytes(std::span(&value, 1));
    bytes.insert(bytes.end(), raw.begin(), raw.end());
}

template <class T>
[[nodiscard]] T load_value(std::span<const std::byte> bytes, std::size_t index) noexcept {
    T value;
    std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
    return value;
}

/// The largest of the ids that a position has at the front of `bytes`, as an unsigned number; `ids` is scratch.
[[nodiscard]] std::uint32_t max_id(const BitUnpacker& unpacker, std::span<const std::byte> bytes,
                                   std::span<std::int32_t> ids) noexcept;

/// The lengths of streams of fixed width against the row's tokens: empty when they fit, else what is wrong.
[[nodiscard]] std::optional<std::string> find_length_defect(const std::vector<StoreStream>& streams,
                                                            const StoredRowView& row);

/// Fills `ids` with the highest of the vocabulary that `named` does not name, descending. There must be as many.
class UnnamedIds {
  public:
    UnnamedIds(std::uint64_t vocabulary, std::uint32_t width);
    void fill(std::span<const std::int32_t> named, std::span<std::int32_t> ids);

  private:
    std::uint64_t vocabulary_;
    std::vector<std::int32_t> highest_;  ///< `width` ids, descending
    std::vector<bool> taken_;
};

}  // namespace distilld
