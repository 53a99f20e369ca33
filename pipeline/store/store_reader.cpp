#include "pipeline/store/store_reader.hpp"

#include <utility>

#include "base/files/folder_lock.hpp"

namespace distilld {

StoreReader::StoreReader(std::filesystem::path folder, const StoreManifest& manifest)
    : folder_(std::move(folder)), codec_(manifest), shards_(folder_, codec_), unsealed_(folder_, codec_) {}

std::uint64_t StoreReader::sealed_rows() const {
    std::uint64_t rows = 0;
    for (const StoreShard& shard : shards_.list()) {
        rows += shard.rows;
    }
    return rows;
}

Result<bool> StoreReader::refresh() {
    const auto is_sealed = [this](std::uint64_t shard) { return shards_.find(shard).has_value(); };
    const auto sealed = shards_.refresh();
    has_writer_ = sealed_rows() < manifest().rows && FolderLock::is_held(folder_).value_or(true);
    if (!sealed || has_writer_) {
        return sealed;
    }
    const auto more = unsealed_.refresh(is_sealed);
    return more ? Result<bool>(*sealed || *more) : more;
}

Result<TeacherTargets> StoreReader::read(const TokenBatch& batch) {
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
    auto targets = codec_.decode(batch, views, buffers_);
    if (!targets) {
        return invalid_input(folder_.string() + ": " + targets.error().message);
    }
    return targets;
}

Result<TokenBatch> StoreReader::batch_of(const std::vector<std::uint64_t>& rows) {
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

Result<StoreReader::Row> StoreReader::row(std::uint64_t number) {
    if (!shards_.has(number) && unsealed_.has(number)) {
        auto row = unsealed_.row(number);
        return row ? Result<Row>(Row{std::move(row->view), std::move(row->file)}) : row.error();
    }
    auto row = shards_.row(number);
    return row ? Result<Row>(Row{std::move(row->view), std::move(row->file)}) : row.error();
}

Result<std::unique_ptr<StoreReader>> open_store_reader(const std::filesystem::path& folder) {
    const auto manifest = read_manifest(folder);
    if (!manifest) {
        return manifest.error();
    }
    auto reader = std::make_unique<StoreReader>(folder, *manifest);
    if (const auto refreshed = reader->refresh(); !refreshed) {
        return refreshed.error();
    }
    return reader;
}

}  // namespace distilld
