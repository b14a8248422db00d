"""The pages, and the script that writes the generated one"""
