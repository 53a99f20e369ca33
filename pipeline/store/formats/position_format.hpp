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
#include "pipeline/store/formats/bit_packing.hpp"
#include "pipeline/store/formats/row_codec.hpp"
#include "pipeline/store/manifest.hpp"

namespace distilld {

/// The teacher's answer for one position, on its way into a store.
struct PositionTargets {
    std::uint64_t row = 0;
    std::uint32_t position = 0;
    ArrayView raw;                      ///< the received logits; empty for top-k answers
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

/// Tokens of a row at consecutive positions.
struct TokenRun {
    std::uint32_t token = 0;     ///< the first, as an index into the row's tokens
    std::uint32_t position = 0;  ///< of the first
    std::uint32_t count = 0;
};

/// One format of the store: encodes positions into bytes of streams and decodes them. Immutable, any thread.
class PositionFormat {
  public:
    enum class Needs { entries, logits };

    virtual ~PositionFormat() = default;
    /// The input that encode() needs.
    [[nodiscard]] virtual Needs needs() const = 0;
    [[nodiscard]] virtual const std::vector<StoreStream>& streams() const = 0;
    /// Of decoded targets: entries per position, and the type of their values.
    [[nodiscard]] virtual std::uint32_t width() const = 0;
    [[nodiscard]] virtual ElementType value_type() const = 0;

    /// Appends the position to the row's streams.
    virtual void encode(const PositionTargets& position, StoredRow& row) const = 0;
    /// Returns why the bytes are not a valid row of this format: wrong lengths of streams, ids outside the vocabulary.
    [[nodiscard]] virtual std::optional<std::string> find_defect(const StoredRowView& row) const = 0;
    /// `runs` cover all tokens of the row, which must have no defect.
    virtual void decode(const StoredRowView& row, std::span<const TokenRun> runs, const TargetArrays& target) const = 0;
};

/// Null for format tensors, which has no positions.
[[nodiscard]] std::unique_ptr<PositionFormat> make_position_format(const StoreManifest& manifest);
/// One factory per format.
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

/// The maximum of a position's ids at the front of `bytes`, as an unsigned number; `ids` is scratch memory.
[[nodiscard]] std::uint32_t max_id(const BitUnpacker& unpacker, std::span<const std::byte> bytes,
                                   std::span<std::int32_t> ids) noexcept;

/// Checks the lengths of fixed-width streams against the row's tokens. Empty if they match, else what is wrong.
[[nodiscard]] std::optional<std::string> find_length_defect(const std::vector<StoreStream>& streams,
                                                            const StoredRowView& row);

/// Fills `ids` with the highest ids of the vocabulary that are not in `named`, descending. There must be enough.
class FillerIds {
  public:
    FillerIds(std::uint64_t vocabulary, std::uint32_t width);
    void fill(std::span<const std::int32_t> named, std::span<std::int32_t> ids);

  private:
    std::uint64_t vocabulary_;
    std::vector<std::int32_t> highest_;  ///< `width` ids, descending
    std::vector<bool> taken_;
};

}  // namespace distilld
