#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/store/formats/target_buffers.hpp"
#include "pipeline/store/manifest.hpp"

namespace distilld {

class PositionFormat;

/// One stored row of the dataset: only positions with a label. Its bytes depend only on the row and its targets.
struct StoredRow {
    std::uint64_t row = 0;
    std::uint32_t tokens = 0;     ///< stored positions
    std::vector<std::byte> mask;  ///< bit t % 8 of byte t / 8: position t is stored; ceil(sequence_length / 8) bytes
    std::vector<std::vector<std::byte>> streams;  ///< as in RowCodec::streams()
    double kl_sum = 0;                            ///< see StoreShard
    std::uint64_t kl_tokens = 0;
};

/// A view of a row in a StoredRow or in a mapped shard, which must outlive it.
struct StoredRowView {
    std::uint64_t row = 0;
    std::uint32_t tokens = 0;
    std::span<const std::byte> mask;
    std::vector<std::span<const std::byte>> streams;
};
[[nodiscard]] StoredRowView view_of(const StoredRow& row);

/// CRC-32C over the row's number (u64, little-endian), its mask and its streams in their order.
[[nodiscard]] std::uint32_t checksum_of(const StoredRowView& row);

/// A tensor of a shard, with `width` elements per position, or as many as the position needs (ragged).
struct StoreStream {
    std::string name;
    ElementType type = ElementType::u8;
    std::uint64_t width = 0;  ///< elements per position; 0 = ragged: `<name>_starts` says where each row begins
};

/// Converts a teacher's targets to stored rows and back. Immutable; any thread, several at once.
class RowCodec {
  public:
    /// `manifest` must be complete (complete_manifest()).
    explicit RowCodec(const StoreManifest& manifest);
    ~RowCodec();
    RowCodec(const RowCodec&) = delete;
    RowCodec& operator=(const RowCodec&) = delete;

    [[nodiscard]] const StoreManifest& manifest() const { return manifest_; }
    [[nodiscard]] const std::vector<StoreStream>& streams() const { return streams_; }

    /// Returns why the bytes cannot be a row of this store, for example lengths that do not match its tokens, or ids
    /// outside the vocabulary; empty if they can. Rows for decode() must have passed this.
    [[nodiscard]] std::optional<std::string> find_defect(const StoredRowView& row) const;

    /// Encodes the rows batch.row_ids of the batch, in its order. Each position with a counted label must have targets,
    /// with ids below the vocabulary and no NaN. Targets with more than k entries are cut (the rest goes to the tail);
    /// logits are reduced. Fewer entries, hidden states and anything else that this format cannot keep is an error
    /// (invalid_input) that names row and position. `sampled` and `full` need logits. The draws of `sampled` depend
    /// only on dataset, row and position. `tensors` needs Kind::tensors with its outputs in their shapes.
    [[nodiscard]] Result<std::vector<StoredRow>> encode(const TokenBatch& batch, const TeacherTargets& targets) const;

    /// Decodes rows as a reader returns them: kind tensors (tensors), logits (full) or topk, [batch.rows,
    /// batch.columns, width], with the vocabulary, k or `samples` as the width; ids i32 by descending probability,
    /// values f16 or f32, tail f32, loss_mask 1 at stored positions (all arrays are 0 elsewhere). `rows` are those of
    /// `batch`, in its order; a position with a counted label that is not stored is an error. Missing entries of a
    /// position (topp, sampled) become ids that it does not name, from the end of the vocabulary on, with even shares
    /// of the tail, which is empty (−inf) for `sampled`. The output's memory is from `buffers`.
    [[nodiscard]] Result<TeacherTargets> decode(const TokenBatch& batch, std::span<const StoredRowView> rows,
                                                TargetBuffers& buffers) const;

    /// The same for rows from encode(), as training on the store will see them.
    [[nodiscard]] Result<TeacherTargets> decode(const TokenBatch& batch, std::span<const StoredRow> rows,
                                                TargetBuffers& buffers) const;

  private:
    StoreManifest manifest_;
    std::unique_ptr<PositionFormat> format_;  ///< null with format tensors
    std::vector<StoreStream> streams_;
};

}  // namespace distilld
