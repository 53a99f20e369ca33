#include <algorithm>
#include <utility>

#include "pipeline/data/dataset.hpp"
#include "pipeline/data/jsonl_document.hpp"
#include "pipeline/data/memory_dataset.hpp"
#include "pipeline/data/mixed_dataset.hpp"
#include "pipeline/data/read_documents.hpp"
#include "pipeline/data/row_builder.hpp"

namespace distilld {

namespace {

using Files = std::span<const std::filesystem::path>;

// One each for the teachers that the documents name, or one for all.
Result<std::vector<RowBuilder>> build_rows(Files files, const Tokenizer* tokenizer, const DatasetOptions& options) {
    if (options.sequence_length == 0) {
        return invalid_input("sequence_length is 0: at least 1 is needed");
    }
    std::vector<RowBuilder> builders(std::max<std::size_t>(1, options.teachers.size()), RowBuilder(tokenizer, options));
    const auto add = [&builders](const Document& document, std::uint64_t number, double read_share) {
        return builders[document.teacher].add(document, number, read_share);
    };
    if (Result<void> read = read_documents(files, tokenizer, options, add); !read) {
        return read.error();
    }
    for (RowBuilder& builder : builders) {
        builder.cut();
    }
    return builders;
}

Error nothing_in(Files files, const std::string& of_whom) {
    const std::string which =
        files.size() == 1 ? files.front().string() + ": holds" : "the " + std::to_string(files.size()) + " files hold";
    return invalid_input(which + " nothing to train on" + of_whom +
                         ": no document has two tokens, the second of them a target");
}

}  // namespace

Result<std::unique_ptr<Dataset>> load_jsonl_dataset(Files files, const Tokenizer* tokenizer,
                                                    const DatasetOptions& options) {
    auto builders = build_rows(files, tokenizer, options);
    if (!builders) {
        return builders.error();
    }
    auto dataset = builders->front().finish();
    if (dataset == nullptr) {
        return nothing_in(files, "");
    }
    return dataset;
}

Result<std::shared_ptr<const MixedDataset>> load_mixed_dataset(Files files, const Tokenizer* tokenizer,
                                                               const DatasetOptions& options, bool every_teacher) {
    auto builders = build_rows(files, tokenizer, options);
    if (!builders) {
        return builders.error();
    }
    struct Placed {
        std::uint64_t document = 0;
        PartRow row;
    };
    std::vector<Placed> placed;
    std::vector<DatasetPart> parts;
    for (std::uint32_t part = 0; part < builders->size(); ++part) {
        RowBuilder& builder = (*builders)[part];
        std::uint64_t row = 0;
        for (const std::uint64_t document : builder.documents_of_rows()) {
            placed.push_back({document, {part, row++}});
        }
        std::shared_ptr<const Dataset> rows = builder.finish();
        if (rows == nullptr && every_teacher) {
            return nothing_in(files, " of the teacher " + options.teachers[part]);
        }
        if (rows == nullptr) {
            MemoryRows none;
            none.sequence_length = options.sequence_length;
            none.trims = !options.packing;
            rows = make_memory_dataset(std::move(none));
        }
        parts.push_back({options.teachers[part], std::move(rows)});
    }
    if (placed.empty()) {
        return nothing_in(files, "");
    }
    // Rows that begin in one document are of one part.
    std::ranges::sort(placed, {}, [](const Placed& one) { return std::pair(one.document, one.row.row); });
    std::vector<PartRow> order;
    order.reserve(placed.size());
    for (const Placed& one : placed) {
        order.push_back(one.row);
    }
    return std::make_shared<const MixedDataset>(std::move(parts), std::move(order));
}

}  // namespace distilld
