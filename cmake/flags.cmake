# Compiler flags shared by the library, the tests and the benchmarks, and the rule that gives a source file its
# instruction set: the suffix of its name (_avx2, _avx512, _amx and those of features within AVX-512). Everything else is plain x86-64, so that the
# binary starts on any machine and chooses its kernels from the CPU's feature bits.

add_library(mantissa_flags INTERFACE)
target_compile_options(mantissa_flags INTERFACE
  -Wall -Wextra -Wconversion -Wshadow -Wno-sign-conversion
  # GCC 12 warns without cause in std::string's operator+ (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  # Contraction into FMA is written out where it is wanted, so that every instruction set rounds alike.
  -ffp-contract=off
  # These two change no result; they let the compiler vectorise square roots and comparisons.
  -fno-math-errno -fno-trapping-math
  $<$<BOOL:${MANTISSA_WARNINGS_AS_ERRORS}>:-Werror>)
if(MANTISSA_SANITIZE)
  target_compile_options(mantissa_flags INTERFACE -fsanitize=${MANTISSA_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(mantissa_flags INTERFACE -fsanitize=${MANTISSA_SANITIZE})
endif()

set(MANTISSA_FLAGS_avx2 -mavx2 -mfma -mf16c)
set(MANTISSA_FLAGS_avx512 -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
set(MANTISSA_FLAGS_avx512bf16 ${MANTISSA_FLAGS_avx512} -mavx512bf16)
set(MANTISSA_FLAGS_avx512fp16 ${MANTISSA_FLAGS_avx512} -mavx512fp16)
set(MANTISSA_FLAGS_avx512vnni ${MANTISSA_FLAGS_avx512} -mavx512vnni)
set(MANTISSA_FLAGS_avx512vpopcntdq ${MANTISSA_FLAGS_avx512} -mavx512vpopcntdq)
set(MANTISSA_FLAGS_amx ${MANTISSA_FLAGS_avx512bf16} -mamx-tile -mamx-bf16 -mamx-int8)

# Gives each source of the list the flags of its suffix.
function(mantissa_set_instruction_sets)
  foreach(source IN LISTS ARGN)
    foreach(isa IN ITEMS avx2 avx512 avx512bf16 avx512fp16 avx512vnni avx512vpopcntdq amx)
      if(source MATCHES "_${isa}\\.cpp$")
        # A precompiled header holds for the flags that it was made with, which are not these.
        set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${MANTISSA_FLAGS_${isa}}"
                                    SKIP_PRECOMPILE_HEADERS ON)
      endif()
    endforeach()
  endforeach()
endfunction()

# Leaves out of a list of sources those of libraries that are not there, or the stand-ins for those that are.
function(mantissa_choose_picture_sources sources)
  foreach(kind IN ITEMS JPEG PNG)
    string(TOLOWER ${kind} name)
    if(MANTISSA_${kind})
      list(FILTER ${sources} EXCLUDE REGEX "/formats/${name}_without_library\\.cpp$")
    else()
      list(FILTER ${sources} EXCLUDE REGEX "/formats/${name}\\.cpp$")
    endif()
  endforeach()
  set(${sources} ${${sources}} PARENT_SCOPE)
endfunction()

# Compiles headers of other people and of the C++ library once for all sources of a target. None of ours: a change of
# one would compile everything anew. Every source names what it uses all the same, which the preset no-llvm shows.
function(mantissa_precompile target)
  target_precompile_headers(${target} PRIVATE ${ARGN})
  # Compiler caches preprocess first; without this GCC leaves no trace of the header there, and they give up.
  target_compile_options(${target} PUBLIC $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endfunction()
