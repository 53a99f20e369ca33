#include <algorithm>
#include <utility>

#include "pipeline/data/dataset.hpp"
#include "pipeline/data/jsonl_document.hpp"
#include "pipeline/data/line_reader.hpp"
#include "pipeline/data/mixed_dataset.hpp"
#include "pipeline/data/row_builder.hpp"

namespace distilld {

namespace {

bool is_blank(std::string_view line) {
    return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

std::string_view compression_of(std::string_view first_bytes) {
    if (first_bytes.starts_with("\x1F\x8B")) {
        return "gzip";
    }
    if (first_bytes.starts_with("\x28\xB5\x2F\xFD")) {
        return "zstd";
    }
    return {};
}

Error at(const LineReader& reader, const Error& error) {
    return Error{error.kind, reader.location() + ": " + error.message};
}

// One each for the teachers that the documents name, or one for all.
Result<std::vector<RowBuilder>> read_documents(const std::filesystem::path& file, const Tokenizer* tokenizer,
                                               const DatasetOptions& options) {
    if (options.sequence_length == 0) {
        return invalid_input("sequence_length is 0: at least 1 is needed");
    }
    LineReader reader(file, options.max_line_bytes, kDocumentPadding);
    if (auto opened = reader.open(); !opened) {
        return opened.error();
    }
    const auto parser = make_document_parser(tokenizer, options);
    std::vector<RowBuilder> builders(std::max<std::size_t>(1, options.teachers.size()), RowBuilder(tokenizer, options));
    Document document;
    for (std::uint64_t number = 0;; ++number) {
        const auto more = reader.next();
        if (!more) {
            return more.error();
        }
        if (!*more) {
            break;
        }
        if (reader.line_number() == 1) {
            if (const auto compression = compression_of(reader.line()); !compression.empty()) {
                return invalid_input(file.string() + ": is compressed with " + std::string(compression) +
                                     ": unpack it first");
            }
        }
        if (is_blank(reader.line())) {
            continue;
        }
        if (auto parsed = parser->parse(reader.line(), document); !parsed) {
            return at(reader, parsed.error());
        }
        const double read_share = reader.file_size() == 0 ? 0.0
                                                          : static_cast<double>(reader.bytes_consumed()) /
                                                                static_cast<double>(reader.file_size());
        if (auto added = builders[document.teacher].add(document, number, read_share); !added) {
            return at(reader, added.error());
        }
    }
    for (RowBuilder& builder : builders) {
        builder.cut();
    }
    return builders;
}

Error nothing_in(const std::filesystem::path& file, const std::string& of_whom) {
    return invalid_input(file.string() + ": holds nothing to train on" + of_whom +
                         ": no document has two tokens, the second of them a target");
}

}  // namespace

Result<std::unique_ptr<Dataset>> load_jsonl_dataset(const std::filesystem::path& file, const Tokenizer* tokenizer,
                                                    const DatasetOptions& options) {
    auto builders = read_documents(file, tokenizer, options);
    if (!builders) {
        return builders.error();
    }
    auto dataset = builders->front().finish();
    if (dataset == nullptr) {
        return nothing_in(file, "");
    }
    return dataset;
}

Result<std::shared_ptr<const MixedDataset>> load_mixed_dataset(const std::filesystem::path& file,
                                                               const Tokenizer* tokenizer,
                                                               const DatasetOptions& options) {
    auto builders = read_documents(file, tokenizer, options);
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
        if (rows == nullptr) {
            return nothing_in(file, " of the teacher " + options.teachers[part]);
        }
        parts.push_back({options.teachers[part], std::move(rows)});
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
