#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "api/spec_docs.hpp"
#include "base/files.hpp"

// Writes what docs/job-spec.md and api/openapi.yaml say of the fields of a job spec, or with --check compares it.

namespace distilld::api {
namespace {

using Generator = Result<std::string> (*)(std::string, const SpecTable&);

/// 0 when the file is as it should be (in the end), else 1.
int bring_up_to_date(const std::string& root, const char* name, Generator generator, bool check) {
    const std::string file = root + "/" + name;
    std::ifstream stream(file, std::ios::binary);
    std::ostringstream text;
    text << stream.rdbuf();
    if (!stream) {
        std::cerr << file << ": cannot be read\n";
        return 1;
    }
    const auto wanted = generator(text.str(), spec_table());
    if (!wanted) {
        std::cerr << file << ": " << wanted.error().message << "\n";
        return 1;
    }
    if (*wanted == text.str()) {
        return 0;
    }
    if (check) {
        std::cerr << file << " does not say what api/spec_fields.cpp says. Write it anew:\n"
                  << "    scripts/build.sh release distilld-spec-docs && build/release/bin/distilld-spec-docs .\n";
        return 1;
    }
    if (const auto written = write_file_atomically(file, *wanted); !written) {
        std::cerr << written.error().message << "\n";
        return 1;
    }
    std::cout << "wrote " << file << "\n";
    return 0;
}

}  // namespace
}  // namespace distilld::api

int main(int argc, char** argv) {
    using namespace distilld::api;
    const bool check = argc == 3 && std::string(argv[1]) == "--check";
    if (argc != 2 && !check) {
        std::cerr << "usage: distilld-spec-docs [--check] FOLDER_OF_THE_REPOSITORY\n";
        return 2;
    }
    const std::string root = argv[argc - 1];
    const int table = bring_up_to_date(root, "docs/job-spec.md", with_field_tables, check);
    const int schema = bring_up_to_date(root, "api/openapi.yaml", with_job_spec_schema, check);
    return table != 0 || schema != 0 ? 1 : 0;
}
