#include "pipeline/store/store_reader.hpp"

#include <atomic>
#include <utility>

#include "base/folder_lock.hpp"
#include "pipeline/store/row_codec.hpp"
#include "pipeline/store/sealed_shards.hpp"
#include "pipeline/store/unsealed_rows.hpp"

namespace distilld {
namespace {

class Reader final : public StoreReader {
  public:
    Reader(std::filesystem::path folder, const StoreManifest& manifest)
        : folder_(std::move(folder)),
          codec_(make_row_codec(manifest)),
          shards_(folder_, *codec_),
          unsealed_(folder_, *codec_) {}

    const StoreManifest& manifest() const override { return codec_->manifest(); }
    const std::filesystem::path& folder() const override { return folder_; }
    std::vector<StoreShard> shards() const override { return shards_.list(); }
    std::uint64_t sealed_rows() const override {
        std::uint64_t rows = 0;
        for (const StoreShard& shard : shards_.list()) {
            rows += shard.rows;
        }
        return rows;
    }
    std::uint64_t held_rows() const override { return sealed_rows() + unsealed_.count(); }
    bool has_writer() const override { return has_writer_; }
    bool has(std::uint64_t row) const override { return shards_.has(row) || unsealed_.has(row); }
    std::map<std::uint64_t, std::string> damaged() const override { return shards_.damaged(); }

    Result<bool> refresh() override {
        const auto is_sealed = [this](std::uint64_t shard) { return shards_.find(shard).has_value(); };
        const auto sealed = shards_.refresh();
        has_writer_ = sealed_rows() < manifest().rows && FolderLock::is_held(folder_).value_or(true);
        if (!sealed || has_writer_) {
            return sealed;
        }
        const auto more = unsealed_.refresh(is_sealed);
        return more ? Result<bool>(*sealed || *more) : more;
    }

    Result<TeacherTargets> read(const TokenBatch& batch) override {
        std::vector<Row> rows;
        std::vector<StoredRowView> views;
        for (const std::uint64_t number : batch.row_ids) {
            auto row = this->row(number);
            if (!row) {
                return row.error();
            }
            views.push_back(row->view);
            rows.push_back(std::move(*row));
        }
        if (views.size() != batch.rows) {
            return invalid_input(folder_.string() + ": the batch does not say which rows of the dataset it has");
        }
        auto targets = codec_->decode(batch, views, buffers_);
        if (!targets) {
            return invalid_input(folder_.string() + ": " + targets.error().message);
        }
        return targets;
    }

    Result<TokenBatch> batch_of(const std::vector<std::uint64_t>& rows) override {
        TokenBatch batch;
        batch.rows = static_cast<std::uint32_t>(rows.size());
        batch.columns = manifest().sequence_length;
        batch.input_ids.resize(std::size_t{batch.rows} * batch.columns);
        batch.labels.assign(batch.input_ids.size(), kIgnoredLabel);
        batch.lengths.assign(rows.size(), static_cast<std::int32_t>(batch.columns));
        batch.row_ids = rows;
        for (std::size_t b = 0; b < rows.size(); ++b) {
            const auto row = this->row(rows[b]);
            if (!row) {
                return row.error();
            }
            for (std::size_t t = 0; t < batch.columns; ++t) {
                if ((static_cast<unsigned>(row->view.mask[t / 8]) >> (t % 8) & 1U) != 0) {
                    batch.labels[b * batch.columns + t] = 0;
                    ++batch.target_tokens;
                }
            }
        }
        return batch;
    }

  private:
    struct Row {
        StoredRowView view;
        std::shared_ptr<const void> file;  ///< keeps the view's bytes
    };

    Result<Row> row(std::uint64_t number) {
        if (!shards_.has(number) && unsealed_.has(number)) {
            auto row = unsealed_.row(number);
            return row ? Result<Row>(Row{std::move(row->view), std::move(row->file)}) : row.error();
        }
        auto row = shards_.row(number);
        return row ? Result<Row>(Row{std::move(row->view), std::move(row->file)}) : row.error();
    }

    const std::filesystem::path folder_;
    const std::unique_ptr<RowCodec> codec_;
    SealedShards shards_;
    UnsealedRows unsealed_;
    std::atomic<bool> has_writer_ = false;
    TargetBuffers buffers_;
};

}  // namespace

Result<std::unique_ptr<StoreReader>> open_store_reader(const std::filesystem::path& folder) {
    const auto manifest = read_manifest(folder);
    if (!manifest) {
        return manifest.error();
    }
    auto reader = std::make_unique<Reader>(folder, *manifest);
    if (const auto refreshed = reader->refresh(); !refreshed) {
        return refreshed.error();
    }
    return std::unique_ptr<StoreReader>(std::move(reader));
}

}  // namespace distilld
