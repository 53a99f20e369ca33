// The tokenizer at the command line, for comparison with Hugging Face's:
//   distilld-tokenizer-probe write FOLDER     writes the byte tokenizer's files
//   distilld-tokenizer-probe encode FOLDER    ids of standard input by that folder's tokenizer, as a JSON array
//   distilld-tokenizer-probe decode FOLDER    bytes of the ids on standard input (separated by spaces)
//   distilld-tokenizer-probe lines FOLDER     for each line of standard input, a JSON string, its ids and the text that
//                                             they decode to: [[…], "…"]
//   distilld-tokenizer-probe documents FOLDER FILE…  ids and labels of each document of JSONL files: [[…], […]]
#include <boost/json.hpp>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_text.hpp"
#include "pipeline/data/read_documents.hpp"
#include "pipeline/data/tokenizer/tokenizer.hpp"

namespace {

int fail(const std::string& message) {
    std::cerr << message << '\n';
    return 1;
}

int write(const char* folder) {
    const auto written = distilld::write_byte_tokenizer(folder);
    return written ? 0 : fail(written.error().message);
}

int encode(const distilld::Tokenizer& tokenizer) {
    const std::string text{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
    const char* separator = "[";
    for (const std::int32_t id : tokenizer.encode(text)) {
        std::cout << separator << id;
        separator = ",";
    }
    std::cout << (*separator == '[' ? "[]" : "]") << '\n';
    return 0;
}

int decode(const distilld::Tokenizer& tokenizer) {
    const std::vector<std::int32_t> ids{std::istream_iterator<std::int32_t>(std::cin),
                                        std::istream_iterator<std::int32_t>()};
    std::cout << tokenizer.decode(ids);
    return 0;
}

int lines(const distilld::Tokenizer& tokenizer) {
    std::ios::sync_with_stdio(false);
    for (std::string line; std::getline(std::cin, line);) {
        const std::vector<std::int32_t> ids = tokenizer.encode(boost::json::parse(line).as_string());
        std::cout << distilld::to_text({boost::json::value_from(ids), tokenizer.decode(ids)}) << '\n';
    }
    return 0;
}

int documents(const distilld::Tokenizer& tokenizer, const std::vector<std::filesystem::path>& files) {
    const auto print = [](const distilld::Document& document, std::uint64_t, double) -> distilld::Result<void> {
        const auto& labels = document.has_labels ? document.labels : document.ids;
        std::cout << distilld::to_text({boost::json::value_from(document.ids), boost::json::value_from(labels)})
                  << '\n';
        return {};
    };
    const auto read = distilld::read_documents(files, &tokenizer, {}, print);
    return read ? 0 : fail(read.error().message);
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view command = argc > 1 ? argv[1] : "";
    if (argc < 3 || (argc > 3 && command != "documents")) {
        return fail("usage: distilld-tokenizer-probe write|encode|decode|lines|documents FOLDER [FILE…]"), 2;
    }
    if (command == "write") {
        return write(argv[2]);
    }
    const auto tokenizer = distilld::load_tokenizer(argv[2]);
    if (!tokenizer) {
        return fail(tokenizer.error().message);
    }
    if (*tokenizer == nullptr) {
        return fail("no tokenizer.json in the folder");
    }
    if (command == "encode") {
        return encode(**tokenizer);
    }
    if (command == "decode") {
        return decode(**tokenizer);
    }
    if (command == "lines") {
        return lines(**tokenizer);
    }
    if (command == "documents") {
        return documents(**tokenizer, {argv + 3, argv + argc});
    }
    return fail("unknown command"), 2;
}
