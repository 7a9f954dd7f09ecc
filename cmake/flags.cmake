# Compiler flags shared by the library, the tests and the benchmarks, and the rule that gives a source file its
# instruction set: the suffix of its name (_avx2, _avx512, _amx and those of features within AVX-512). Everything else is plain x86-64, so that the
# binary starts on any machine and chooses its kernels from the CPU's feature bits.

add_library(mantissa_flags INTERFACE)
target_compile_options(mantissa_flags INTERFACE
  -Wall -Wextra -Wconversion -Wno-sign-conversion
  # Compiled together, a name in one source hides a local one of another; the preset no-llvm looks for what is meant.
  $<$<NOT:$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>>:-Wshadow>
  # GCC 12 warns without cause in std::string's operator+ (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  # Contraction into FMA is written out where it is wanted, so that every instruction set rounds alike.
  -ffp-contract=off
  # GCC clears and copies a few hundred bytes, as a structure has, by an instruction that waits for all before it: on
  # Zen 5 the 144 bytes that describe a tile took as long as its products over a depth of 64. Stores do not wait.
  $<$<CXX_COMPILER_ID:GNU>:-mmemset-strategy=unrolled_loop:512:noalign,libcall:-1:noalign>
  $<$<CXX_COMPILER_ID:GNU>:-mmemcpy-strategy=unrolled_loop:512:noalign,libcall:-1:noalign>
  # These two change no result; they let the compiler vectorise square roots and comparisons.
  -fno-math-errno -fno-trapping-math
  $<$<BOOL:${MANTISSA_WARNINGS_AS_ERRORS}>:-Werror>)
if(MANTISSA_SANITIZE)
  # Accesses outside of objects and through null are AddressSanitizer's to find; looked for twice, they take a fourth of
  # the kernels' compile time and more. Options of the folder stand before those of a target, which may take some back.
  add_compile_options(-fsanitize=${MANTISSA_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all -fno-sanitize=null,object-size,pointer-overflow)
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

# Appends to a list of sources those of kernels that read alike at every level: NAME_of_level.cpp is compiled once for
# each level, as NAME_LEVEL.cpp, a source in the build folder that says the level and includes it.
function(mantissa_write_sources_of_levels sources)
  file(GLOB_RECURSE of_level CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_of_level.cpp)
  foreach(source IN LISTS of_level)
    set(levels generic avx2 avx512)
    if(NOT source MATCHES "/(attention/kernels|contraction/(row_product|widen_codes)|modes/narrowing)_of_level")
      list(APPEND levels avx512bf16)  # the others' kernels for it are files of their own, or those of AVX-512
    endif()
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${source})
    foreach(level IN LISTS levels)
      string(REPLACE "_of_level.cpp" "_${level}.cpp" written ${CMAKE_CURRENT_BINARY_DIR}/levels/${path})
      string(REPLACE bf16 _bf16 name ${level})
      file(CONFIGURE OUTPUT ${written} CONTENT "#define MANTISSA_LEVEL_${level}
#define MANTISSA_LEVEL \"${name}\"
#define MANTISSA_OF_LEVEL(function) function##_${level}
#include \"${path}\"
")
      list(APPEND ${sources} ${written})
    endforeach()
  endforeach()
  set(${sources} ${${sources}} PARENT_SCOPE)
endfunction()

# Leaves out of a list of sources those of libraries that are not there, or the stand-ins for those that are.
function(mantissa_choose_image_sources sources)
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

# Compiles the sources of a folder as one, or in equal parts of at most 16: what they include and instantiate alike is
# compiled once. So names that are local to a file must differ within a folder.
function(mantissa_compile_together target)
  if(NOT MANTISSA_COMPILE_TOGETHER)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # GCC takes what a source says of its own types for what a header says of everybody's.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  get_target_property(sources ${target} SOURCES)
  set(folders "")
  foreach(source IN LISTS sources)
    get_filename_component(folder ${source} DIRECTORY)
    file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${folder})
    string(REPLACE "/" "_" folder ${folder})
    list(APPEND folders ${folder})
    list(APPEND sources_of_${folder} ${source})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder IN LISTS folders)
    list(LENGTH sources_of_${folder} count)
    math(EXPR parts "(${count} + 15) / 16")
    math(EXPR size "(${count} + ${parts} - 1) / ${parts}")
    set(index 0)
    foreach(source IN LISTS sources_of_${folder})
      math(EXPR part "${index} / ${size}")
      math(EXPR index "${index} + 1")
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${part})
    endforeach()
  endforeach()
endfunction()

# Compiles headers once for all sources of a target: those of other people and of the C++ library, and of ours only what
# most of its sources include, since a change of one compiles everything anew. Every source names what it uses all the
# same, which the preset no-llvm shows.
function(mantissa_precompile target)
  target_precompile_headers(${target} PRIVATE ${ARGN})
  # Compiler caches preprocess first; without this GCC leaves no trace of the header there, and they give up.
  target_compile_options(${target} PUBLIC $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endfunction()
