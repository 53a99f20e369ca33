// Writes a store for tests that know nothing of our code: store_probe DIR MANIFEST LOGITS. MANIFEST is a JSON object
// with the fields of a manifest, LOGITS a file of f32 [rows, sequence_length, vocabulary]; the first position of each
// row carries no loss. Rows come in two batches, the later half first.
#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/files/files.hpp"
#include "base/json_fields.hpp"
#include "pipeline/store/store_writer.hpp"

namespace {

using namespace distilld;

TokenBatch batch_of(const StoreManifest& manifest, std::uint64_t first, std::uint64_t end) {
    TokenBatch batch;
    batch.rows = static_cast<std::uint32_t>(end - first);
    batch.columns = manifest.sequence_length;
    batch.row_ids.resize(batch.rows);
    std::iota(batch.row_ids.begin(), batch.row_ids.end(), first);
    batch.input_ids.resize(std::size_t{batch.rows} * batch.columns);
    for (std::size_t at = 0; at < batch.input_ids.size(); ++at) {
        batch.labels.push_back(at % batch.columns == 0 ? kIgnoredLabel : 0);
    }
    return batch;
}

TeacherTargets targets_of(const StoreManifest& manifest, const TokenBatch& batch, const std::string& logits) {
    const std::size_t row_bytes = std::size_t{manifest.sequence_length} * manifest.vocabulary * sizeof(float);
    TeacherTargets targets;
    targets.kind = TeacherTargets::Kind::logits;
    targets.rows = batch.rows;
    targets.columns = batch.columns;
    targets.width = static_cast<std::uint32_t>(manifest.vocabulary);
    targets.values = {
        ElementType::f32,
        std::as_bytes(std::span(logits)).subspan(batch.row_ids.front() * row_bytes, batch.rows * row_bytes)};
    return targets;
}

int run(const std::string& folder, const std::string& text, const std::string& logits_file) {
    StoreManifest wanted;
    read_fields(boost::json::parse(text).as_object(), wanted).value();
    const auto writer = open_store_writer(folder, wanted).value();
    const std::string logits = read_text_file(logits_file, std::uint64_t{1} << 32U).value();
    const StoreManifest& manifest = writer->manifest();
    const std::uint64_t half = std::max<std::uint64_t>(manifest.rows / 2, 1);
    for (const std::uint64_t first : {half, std::uint64_t{0}}) {
        const std::uint64_t end = first == 0 ? half : manifest.rows;
        if (first < end) {
            const TokenBatch batch = batch_of(manifest, first, end);
            writer->add(batch, targets_of(manifest, batch, logits)).value();
        }
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return argc == 4 ? run(argv[1], argv[2], argv[3]) : 2;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "store_probe: %s\n", error.what());
        return 1;
    }
}
